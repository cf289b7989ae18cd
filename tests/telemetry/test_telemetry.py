"""Test traces, metrics and lineage: what receivers decode of runs on two engines, and runs whose receivers are away."""

import json
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests import toys
from tests.fleet.test_fleet import DAILY, write
from tests.fleet.test_metrics_file import metrics
from tests.telemetry.receivers import Receiver, attributes
from tfopt.artifacts import Files, Report
from tfopt.cli.engines import run_recorded
from tfopt.cli.main import main
from tfopt.component import Input
from tfopt.dag.run_events import listening
from tfopt.dag.tracing import trace
from tfopt.errors import ComponentError
from tfopt.kfp.container_entry import run_step
from tfopt.reports import report_schema
from tfopt.run_records.run_record import RunRecord
from tfopt.telemetry import delivery
from tfopt.telemetry.process_usage import ProcessUsage

CALLER = "4bf92f3577b34da6a3ce929d0e0e4736"  # ID of a trace
CALLING_RUN = str(uuid.uuid4())


@pytest.fixture(autouse=True, scope="module")
def no_settings() -> Iterator[None]:
    """No variables of the machine, and no file of the user."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in delivery.os.environ if name.startswith(("OTEL_", "OPENLINEAGE", "TRACE"))]:
            patch.delenv(name)
        patch.setenv("HOME", "/nowhere")
        yield


def adding(steps, data: Input[Files], *, start: int = 0) -> None:
    """Count, and add."""
    counted = steps(toys.count, data=data)
    steps(toys.add, reports=[counted.outputs["report"]], start=start)


def failing(steps, data: Input[Files]) -> None:
    """Fail."""
    steps(toys.fail, data=data)


@dataclass
class Runs:
    """A run, the same one with another parameter, and one that fails; all of them were received."""

    folder: Path
    receivers: list[Receiver]

    def record(self, name: str) -> RunRecord:
        return report_schema.load(RunRecord, self.folder / name / "run.json")


@pytest.fixture(scope="module", params=["process", pytest.param("beam", marks=pytest.mark.nightly)])
def runs(request, tmp_path_factory) -> Runs:
    folder = tmp_path_factory.mktemp("runs")
    data = folder / "data.txt"
    data.write_text("one\ntwo\n")
    receivers = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACEPARENT", f"00-{CALLER}-00f067aa0ba902b7-01")
        patch.setenv("OPENLINEAGE_PARENT_ID", f"jobs/nightly/{CALLING_RUN}")
        for dag, values in ((adding, {"start": 0}), (adding, {"start": 1}), (failing, {})):
            with Receiver() as receiver:
                patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
                patch.setenv("OPENLINEAGE_URL", receiver.url)
                try:
                    run_recorded(trace(dag), {"data": str(data), **values}, folder / dag.__name__, request.param)
                except ComponentError:
                    assert dag is failing
            receivers.append(receiver)
    return Runs(folder, receivers)


def test_a_run_is_a_trace_with_a_span_for_each_step(runs):
    first, second, _ = (receiver.spans() for receiver in runs.receivers)
    assert set(first) == {"adding", "count", "add"}
    assert {span.trace_id.hex() for span in first.values()} == {CALLER}
    run = second["adding"]
    assert attributes(run)["tfopt.run.id"] == runs.record("adding").id
    for name, reused in (("count", True), ("add", False)):
        span = second[name]
        facts = attributes(span)
        assert span.parent_span_id == run.span_id
        assert span.status.code == Status.STATUS_CODE_OK
        assert run.start_time_unix_nano <= span.start_time_unix_nano < span.end_time_unix_nano
        assert span.end_time_unix_nano <= run.end_time_unix_nano
        assert (facts["tfopt.reused"], facts["tfopt.component"]) == (reused, name)
        assert facts["tfopt.resources.memory"] == getattr(toys, name).resources.memory
        assert facts["tfopt.cpu_time"] >= 0
        assert facts["tfopt.peak_memory"] > 1 << 20


def test_the_step_that_fails_and_its_run_have_the_error(runs):
    spans = runs.receivers[2].spans()
    for name in ("failing", "fail"):
        assert spans[name].status.code == Status.STATUS_CODE_ERROR
        assert spans[name].status.message.endswith("data.txt")
        (event,) = spans[name].events
        assert "how to fix: give something else" in attributes(event)["exception.message"]


def test_metrics_are_the_times_of_the_spans(runs):
    for receiver, failed in ((runs.receivers[0], set()), (runs.receivers[2], {"failing", "fail"})):
        samples, spans = receiver.samples(), receiver.spans()
        (run,) = set(spans) & {"adding", "failing"}
        for name, span in spans.items():
            kind, labels = ("run", (run,)) if name == run else ("step", (run, name))
            seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
            assert samples[f"tfopt_{kind}_duration_seconds", labels] == pytest.approx(seconds)
            assert samples[f"tfopt_{kind}_succeeded", labels] == (name not in failed)


def test_each_run_and_step_has_a_start_and_an_end_of_one_run_in_openlineage(runs):
    first, _, last = (receiver.lineage() for receiver in runs.receivers)
    order = [(event["eventType"], event["job"]["name"]) for event in first]
    assert order == [
        ("START", "adding"),
        *((kind, f"adding.{step}") for step in ("count", "add") for kind in ("START", "COMPLETE")),
        ("COMPLETE", "adding"),
    ]
    assert [event["eventTime"] for event in first] == sorted(event["eventTime"] for event in first)
    assert all(datetime.fromisoformat(event["eventTime"]).tzinfo for event in first)
    identifiers = {event["job"]["name"]: event["run"]["runId"] for event in [*first, *reversed(first)]}
    assert len({(event["job"]["name"], event["run"]["runId"]) for event in first}) == len(identifiers) == 3
    for event in first:
        parent = event["run"]["facets"]["parent"]
        is_step = "." in event["job"]["name"]
        expected = (identifiers["adding"], "adding") if is_step else (CALLING_RUN, "nightly")
        assert (parent["run"]["runId"], parent["job"]["name"]) == expected
    ends = {event["job"]["name"]: event for event in last if event["eventType"] != "START"}
    assert {name: event["eventType"] for name, event in ends.items()} == {
        "failing.fail": "FAIL",
        "failing": "FAIL",
    }
    assert "how to fix" in ends["failing.fail"]["run"]["facets"]["errorMessage"]["message"]


def test_the_datasets_of_steps_connect_them_with_versions(runs):
    first, second, _ = (receiver.lineage() for receiver in runs.receivers)
    count, add, run = (event for event in first if event["eventType"] == "COMPLETE")
    (source,), (counted,) = count["inputs"], count["outputs"]
    (read,), (total,) = add["inputs"], add["outputs"]
    assert (source["namespace"], source["name"]) == ("file", str(runs.folder / "data.txt"))
    assert (read["namespace"], read["name"]) == (counted["namespace"], counted["name"])
    assert read["facets"]["version"] == counted["facets"]["version"]
    assert counted["facets"]["datasetType"]["subType"] == "Report"
    statistics = total["outputFacets"]["outputStatistics"]
    files = [file for file in Path(total["name"]).rglob("*") if file.is_file()]
    assert (statistics["size"], statistics["fileCount"]) == (sum(file.stat().st_size for file in files), len(files))
    assert ([each["name"] for each in run["inputs"]], [each["name"] for each in run["outputs"]]) == (
        [source["name"]],
        [total["name"]],
    )
    tags = {
        event["job"]["name"]: [tag for tag in event["run"]["facets"]["tags"]["tags"] if tag["key"] == "reused"]
        for event in second
        if event["eventType"] == "COMPLETE"
    }
    assert [name for name, reused in tags.items() if reused] == ["adding.count"]


def run_adding(folder: Path) -> float:
    """Return the value that a run computes."""
    data = folder / "data.txt"
    data.write_text("one\ntwo\n")
    outcomes = run_recorded(trace(adding), {"data": str(data), "start": 0}, folder / "root", "process")
    return Report(outcomes["add"].outputs["total"].uri).read()["count"]


@pytest.mark.parametrize("how", ["refuses", "is slow"])
def test_a_receiver_that_is_away_changes_neither_the_run_nor_its_time(tmp_path, monkeypatch, capfd, how):
    monkeypatch.setattr(delivery, "LIMIT_S", 0.3)
    receiver = Receiver(delay=60.0)
    with receiver:
        url = receiver.url if how == "is slow" else "http://127.0.0.1:9"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        ended: list[float] = []
        with listening(lambda event: ended.append(time.monotonic())):
            assert run_adding(tmp_path) == 8
        assert time.monotonic() - ended[-1] < 2
    lines = [line.partition(":")[0] for line in capfd.readouterr().err.splitlines() if "the receiver did not" in line]
    assert sorted(lines) == ["openlineage", "otlp"]


def test_a_receiver_that_comes_back_gets_everything(tmp_path, monkeypatch):
    from tfopt.telemetry import openlineage, otlp  # after the variables

    with Receiver(status=400) as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
        exporters = [otlp.exporter(), openlineage.exporter()]
        events = []
        data = tmp_path / "data.txt"
        data.write_text("one\ntwo\n")
        with listening(events.append):
            run_recorded(trace(adding), {"data": str(data), "start": 0}, tmp_path / "root", "process")
        for exporter in exporters:
            for event in events:
                exporter.add(event, ProcessUsage(0.0, 0))
            with pytest.raises(Exception, match=r".+"):
                exporter.flush(is_last=False)
        receiver.status = 200
        for exporter in exporters:
            exporter.flush(is_last=True)
            exporter.flush(is_last=True)
    assert (len(receiver.spans()), len(receiver.lineage())) == (3, 6)


def test_a_missing_package_and_a_wrong_setting_are_logged_and_the_run_goes_on(tmp_path, monkeypatch, capfd, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "nonesuch")
    assert run_adding(tmp_path) == 8
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    monkeypatch.delitem(sys.modules, "tfopt.telemetry.otlp", raising=False)
    with delivery.exported():
        pass
    texts = capfd.readouterr().err + caplog.text
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc, not http/protobuf" in texts
    assert "openlineage: nothing is sent" in texts
    assert "pip install 'tfopt[otlp]'" in texts


@pytest.mark.parametrize(
    ("variables", "signals"),
    [
        ({}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, "TRACES METRICS"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://a"}, "TRACES"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_METRICS_EXPORTER": "none"}, "TRACES"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_SDK_DISABLED": "true"}, ""),
    ],
)
def test_standard_variables_choose_the_signals(monkeypatch, variables, signals):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert [signal for signal in ("TRACES", "METRICS") if delivery.uses_otlp(signal)] == signals.split()


def test_a_file_in_the_working_folder_configures_the_transport(tmp_path, monkeypatch):
    (tmp_path / "openlineage.yml").write_text("transport: {type: file, log_file_path: events.jsonl, append: true}")
    monkeypatch.chdir(tmp_path)
    run_adding(tmp_path)
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["eventType"] for event in events] == ["START", *["START", "COMPLETE"] * 2, "COMPLETE"]


def test_a_step_in_a_pod_sends_addresses_in_place_of_paths(tmp_path, monkeypatch):
    targets = {"report": {"artifacts": [{"name": "report", "uri": f"file://{tmp_path}/report", "metadata": {}}]}}
    data = tmp_path / "data.txt"
    data.write_text("one\n")
    sources = {"data": {"artifacts": [{"name": "17", "uri": "minio://bucket/run/data.txt", "metadata": {}}]}}
    monkeypatch.setattr(
        "tfopt.kfp.container_entry._local_path",
        lambda uri: uri.replace("minio://bucket/run", str(tmp_path)).removeprefix("file://"),
    )
    outputs = {"artifacts": targets, "outputFile": str(tmp_path / "output.json")}
    with Receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.url)
        run_step(toys.count, json.dumps({"inputs": {"artifacts": sources}, "outputs": outputs}))
    assert list(receiver.spans()) == ["count"]
    start, end = receiver.lineage()
    assert (start["job"]["name"], end["eventType"]) == ("count", "COMPLETE")
    assert [(each["namespace"], each["name"]) for each in end["inputs"]] == [("minio://bucket", "run/data.txt")]


def test_the_metrics_of_a_fleet_by_otlp_are_those_of_the_file(tmp_path, monkeypatch, capsys):
    write(tmp_path / "served", DAILY)
    with Receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        assert main(["fleet", str(tmp_path / "served"), "--metrics", str(tmp_path / "m.prom")]) == 0
    written = metrics((tmp_path / "m.prom").read_text(encoding="utf-8"))
    assert receiver.samples() == {
        (name, labels): value for (name, *rest), value in written.items() for labels in [tuple(rest)]
    }
    assert len(written) > 8
