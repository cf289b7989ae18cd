"""Test `tfopt fleet`: what it reports about destinations with planted problems, and what it computes from histories."""

import datetime
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tfopt.cli.destinations.fleet import read_file
from tfopt.cli.main import main
from tfopt.fleet.destination_state import Destination
from tfopt.fleet.library_upgrades import estimate_upgrades
from tfopt.model_store.run_history import ModelRecord, RunRecord
from tfopt.model_store.withdrawals import new_change, write_change
from tfopt.reports import report_schema
from tfopt.reports.decision_report import MeasurementConditions, QualityConditions, SpeedConditions

NOW = datetime.datetime.now(datetime.UTC)
CONDITIONS = MeasurementConditions(
    QualityConditions("classification", "label", "test"), SpeedConditions("AMD EPYC", 1, [1])
)
VERSIONS = {"tfopt": "0.2.0", "onnxruntime": "1.31.1"}
# From run to run by a few per mille, so that a loss of 5 % is one, and 1 % is not.
ACCURACIES = (0.950, 0.952, 0.949, 0.951, 0.950, 0.952)


def run(number: int, *, days_ago: float | None = None, blessed: bool = True, **metrics: float) -> RunRecord:
    """Return the record of a daily run; the sixth one is of today."""
    age = 6.0 - number if days_ago is None else days_ago
    values = {"accuracy": ACCURACIES[(number - 1) % 6], "latency": 0.5, "throughput": 2000.0} | metrics
    winner = ModelRecord("onnx int8", "w", "onnx", values)
    baseline = ModelRecord("trained", "p", "saved_model", {**values, "latency": 2.0, "throughput": 500.0})
    return RunRecord(
        decision=f"decision {number}",
        time=(NOW - datetime.timedelta(days=age)).isoformat(),
        blessed=blessed,
        version=number if blessed else None,
        conditions=CONDITIONS,
        winner=winner,
        parent=baseline,
        reason="blessed" if blessed else "accuracy 90.00% misses at least 95%",
        versions=VERSIONS,
    )


def write(folder: Path, runs: list[RunRecord]) -> Path:
    """Write a destination whose blessed runs each have a version."""
    (folder / "history").mkdir(parents=True)
    for each in runs:
        (folder / "history" / f"{each.decision}.json").write_text(json.dumps(report_schema.dump(each)))
        if each.version:
            (folder / str(each.version)).mkdir()
    return folder


def fleet(capsys, *words: str | Path) -> dict:
    assert main(["fleet", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def state(capsys, destination: Path, *words: str) -> dict:
    (only,) = fleet(capsys, destination, *words)["destinations"]
    return only


DAILY = [run(number) for number in range(1, 7)]


def test_a_healthy_destination_needs_no_attention(tmp_path, capsys):
    healthy = state(capsys, write(tmp_path / "served", DAILY))
    assert healthy.get("problems", []) == []
    assert (healthy["verdict"], healthy["version"], healthy["model"], healthy["cpu"]) == (
        "pushed",
        6,
        "onnx int8",
        "AMD EPYC",
    )
    assert healthy["usual_interval"] == pytest.approx(1.0)
    assert healthy["pushed"] == healthy["last_run"] == DAILY[-1].time
    assert healthy["versions"] == VERSIONS and "cost" not in healthy
    quality, latency = healthy["metrics"]
    assert (quality["metric"], quality["values"], quality["median"]) == ("accuracy", list(ACCURACIES), 0.95)
    assert (latency["metric"], latency["values"][-1], latency["regression"]) == ("latency", 0.5, None)


@pytest.mark.parametrize(
    ("runs", "problems"),
    [
        ([replace(each, time=run(number, days_ago=10 - number).time) for number, each in enumerate(DAILY, 1)],
         ["no run for 4 days, where one every 24 hours is usual: its schedule may fail"]),
        ([*DAILY[:-1], run(6, blessed=False)], ["the last run pushed nothing: accuracy 90.00% misses at least 95%"]),
        ([run(1, blessed=False)], ["the last run pushed nothing: accuracy 90.00% misses at least 95%", "never pushed"]),
        ([run(1, days_ago=40), *(run(n, blessed=False) for n in range(2, 7))],
         ["the last run pushed nothing: accuracy 90.00% misses at least 95%", "nothing pushed for 40 days"]),
        ([*DAILY[:-1], run(6, accuracy=0.90)], ["accuracy is 90.00%, the median of 5 earlier runs 95.00%"]),
        ([*DAILY[:-1], run(6, accuracy=0.99)], []),
        ([*DAILY[:-1], run(6, accuracy=0.948)], []),
        ([*DAILY[:-1], run(6, latency=0.6)], ["latency is 0.600 ms, the median of 5 earlier runs 0.500 ms"]),
        ([*DAILY[:-1], run(6, latency=0.52)], []),
        ([*DAILY[:2], run(6, accuracy=0.5)], []),  # two earlier runs are no reference
    ],
)  # fmt: skip
def test_problems_are_named_with_their_numbers(tmp_path, capsys, runs, problems):
    assert state(capsys, write(tmp_path / "served", runs)).get("problems", []) == problems


def test_latencies_of_other_machines_and_disturbed_ones_are_left_out(tmp_path, capsys):
    elsewhere = replace(CONDITIONS, speed=SpeedConditions("other", 1, [1]))
    runs = [replace(each, conditions=elsewhere) for each in DAILY[:-1]] + [run(6, latency=5.0)]
    other, disturbed = write(tmp_path / "other", runs), tmp_path / "disturbed"
    newest = run(6, latency=5.0)
    write(disturbed, [*DAILY[:-1], replace(newest, winner=replace(newest.winner, disturbed=["latency"]))])
    for destination in (other, disturbed):
        latency = state(capsys, destination)["metrics"][1]
        assert latency["regression"] is None
    assert state(capsys, other)["metrics"][1]["values"] == [None] * 5 + [5.0]


def test_withdrawn_versions_are_not_served_and_no_reference(tmp_path, capsys):
    served = write(tmp_path / "served", [*DAILY[:-1], run(6, accuracy=0.5)])
    write_change(str(served), new_change(6, "withdrawn", "d", "wrong labels"), {})
    withdrawn = state(capsys, served)
    assert withdrawn["version"] == 5
    assert withdrawn["problems"][-1].endswith(": wrong labels")
    assert withdrawn["metrics"][0]["values"] == list(ACCURACIES[:5])


def test_destinations_that_cannot_be_read_do_not_stop_the_others(tmp_path, capsys):
    (write(tmp_path / "damaged", DAILY) / "history" / "x.json").write_text("{")
    (tmp_path / "empty").mkdir()
    write(tmp_path / "served", DAILY)
    states = fleet(capsys, *(tmp_path / name for name in ("damaged", "empty", "missing", "served")))["destinations"]
    assert [each["verdict"] for each in states] == ["unreadable", "no runs", "no runs", "pushed"]
    assert "x.json" in states[0]["problems"][0]
    assert all(
        each["problems"] == ["no runs: its history is empty, or no such folder or address"] for each in states[1:3]
    )


@pytest.mark.parametrize("damage", ["x", "2026-01-01T00:00:00", "2026-13-45T00:00:00+00:00", ""])
def test_a_damaged_time_does_not_stop_the_others(tmp_path, capsys, damage):
    damaged = write(tmp_path / "damaged", [replace(DAILY[-1], time=damage), *DAILY[:-1]])
    (damaged / "7²").mkdir()  # no version
    report = fleet(capsys, damaged, write(tmp_path / "served", DAILY))
    assert [state["verdict"] for state in report["destinations"]] == ["unreadable", "pushed"]
    assert "ISO 8601" in report["destinations"][0]["reason"] or repr(damage) in report["destinations"][0]["reason"]


def test_folders_that_are_no_versions_are_left_out(tmp_path, capsys):
    destination = write(tmp_path / "served", DAILY)
    for name in ("7²", "²", "\u0667"):
        (destination / name).mkdir()
    assert state(capsys, destination)["version"] == 6


def test_costs_follow_from_throughput_price_and_rate(tmp_path, capsys):
    served = write(tmp_path / "served", DAILY)
    cost = state(capsys, served, "--price", "0.36")["cost"]
    # 0.36 an hour is 0.0001 a second, in which 2,000 predictions are made, by the baseline 500
    assert cost == {"per_million": pytest.approx(0.05), "baseline_per_million": pytest.approx(0.2)}
    file = tmp_path / "fleet.yaml"
    file.write_text("destinations:\n- {destination: served, name: A, price: 1, requests_per_second: 4500}\n")
    report = fleet(capsys, "-f", file, "--price", "0.36")
    (only,) = report["destinations"]
    assert (only["name"], only["destination"]) == ("A", str(served))
    assert (only["cost"]["nodes"], only["cost"]["baseline_nodes"]) == (3, 9)
    assert only["cost"]["saved_per_month"] == pytest.approx(6 * 730.5)


def test_a_measured_capacity_takes_the_place_of_the_throughput(tmp_path, capsys):
    served = write(tmp_path / "served", [run(6, capacity=1000.0)])
    assert state(capsys, served, "--price", "0.36")["cost"]["per_million"] == pytest.approx(0.1)


def test_the_file_of_the_docs_is_valid(tmp_path):
    block = re.findall(r"```yaml\n(.*?)```", Path("docs/operate.md").read_text(), re.DOTALL)[0]
    file = tmp_path / "fleet.yaml"
    file.write_text(block)
    fraud = Destination(str(tmp_path / "served" / "fraud"), "fraud", 0.8, 4500.0)
    assert read_file(file) == [Destination("s3://models/churn", "s3://models/churn"), fraud]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("destinations: a\n", ["no list destinations", "- ADDRESS"]),
        ("- a\n", ["a mapping"]),
        ("destinations:\n- {name: a}\n", ["line 2", "the key destination"]),
        ("destinations:\n- {destination: a, prise: 1}\n", ["prise", "price"]),
        ("destinations:\n- {destination: a, price: free}\n", ["price: free", "a number above 0"]),
        ("destinations: []\n", ["no destination", "at least one"]),
        ("destinations: [a, a]\n", ["a twice"]),
    ],
)
def test_wrong_files_are_refused(tmp_path, capsys, text, parts):
    file = tmp_path / "fleet.yaml"
    file.write_text(text)
    assert main(["fleet", "-f", str(file)]) == 1
    error = capsys.readouterr().err
    assert all(part in error for part in parts), error


def upgraded(name: str, latency: float | None) -> list[RunRecord]:
    """Return two pushes, the second with a newer runtime, or one with the older runtime."""
    before = run(1)
    after = replace(run(2, latency=latency or 0.0), versions={**VERSIONS, "onnxruntime": "1.32.0"})
    return [before, after] if latency else [before]


def test_an_upgrade_that_pays_is_found_with_its_interval():
    latencies = {f"model {number}": 0.4 * (1 + 0.01 * number) for number in range(8)}
    histories = {name: upgraded(name, latency) for name, latency in latencies.items()}
    (upgrade,) = estimate_upgrades({**histories, "late": upgraded("late", None)})
    assert (upgrade.package, upgrade.old, upgrade.new, upgrade.pairs) == ("onnxruntime", "1.31.1", "1.32.0", 8)
    assert upgrade.speedup == pytest.approx(0.5 / (0.4 * 1.035), rel=0.002)
    assert 1.15 < upgrade.low < upgrade.speedup < upgrade.high < 1.26
    assert upgrade.waiting == ["late"] and upgrade.pays


@pytest.mark.parametrize(
    "spoil",
    [
        lambda runs: runs[:1],
        lambda runs: [
            runs[0],
            replace(runs[1], conditions=replace(CONDITIONS, speed=SpeedConditions("other", 1, [1]))),
        ],
        lambda runs: [runs[0], replace(runs[1], winner=replace(runs[1].winner, name="onnx"))],
        lambda runs: [runs[0], replace(runs[1], winner=replace(runs[1].winner, disturbed=["latency"]))],
        lambda runs: [runs[0], replace(runs[1], versions=VERSIONS)],
    ],
)
def test_pairs_that_are_not_comparable_do_not_count(spoil):
    histories = {f"model {number}": upgraded("", 0.4) for number in range(6)}
    assert [upgrade.pairs for upgrade in estimate_upgrades(histories)] == [6]
    assert estimate_upgrades({**histories, "model 0": spoil(histories["model 0"])}) == []


def test_slower_upgrades_do_not_pay():
    histories = {f"model {number}": upgraded("", 0.6) for number in range(6)}
    (upgrade,) = estimate_upgrades({**histories, "late": upgraded("late", None)})
    assert upgrade.high < 1 and not upgrade.pays


def test_the_page_and_the_table_begin_with_what_needs_attention(tmp_path, capsys):
    destinations = [
        write(tmp_path / "healthy <b>", DAILY),
        write(tmp_path / "worse", [*DAILY[:-1], run(6, accuracy=0.9)]),
    ]
    page = tmp_path / "pages" / "fleet.html"
    words = ["fleet", *map(str, destinations), "--price", "1", "-o", str(page)]
    assert main(words) == 0
    assert main([*words, "--detailed-exitcode"]) == 2
    assert main([*words[:2], "--detailed-exitcode"]) == 0
    text = page.read_text()
    assert text.index("worse</th>") < text.index("healthy &lt;b&gt;</th>") and "<b>" not in text
    assert "accuracy is 90.00%, the median of 5 earlier runs 95.00%" in text
    assert text.count("<polyline") == 4 and "1 needs attention" in text
    lines = capsys.readouterr().out.splitlines()
    assert "accuracy is 90.00%" in lines[1] and f"page: {page}" in lines
    assert "1 of 2 destinations need attention" in lines


def test_a_canary_is_shown_and_is_not_the_served_version(tmp_path, capsys):
    served = write(tmp_path / "served", [*DAILY[:5], run(6, accuracy=0.5)])
    (served / "6").rmdir()
    write_change(str(served), new_change(6, "pushed", "", "", share=10, served=5), {})
    (state,) = fleet(capsys, served, "-o", tmp_path / "fleet.html", "--metrics", tmp_path / "fleet.prom")[
        "destinations"
    ]
    assert (state["version"], state["canary"], state["share"], state.get("problems")) == (5, 6, 10, None)
    assert state["metrics"][0]["values"][-1] == ACCURACIES[4]
    assert "canary 6: 10% of the requests" in (tmp_path / "fleet.html").read_text()
    assert f'tfopt_canary_ratio{{destination="{served}"}} 0.1' in (tmp_path / "fleet.prom").read_text()
    assert main(["fleet", str(served)]) == 0
    assert "5, canary 6 (10%)" in capsys.readouterr().out
