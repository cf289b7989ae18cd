"""Test notifications: each event arrives at a real web server, also after the server, or the process, was away."""

import contextlib
import datetime
import json
import os
import platform
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.fleet.test_fleet import DAILY, run, write
from tests.kill.killed_command import fork_command
from tfopt.cli.main import main
from tfopt.errors import ComponentError
from tfopt.model_store.run_history import RunRecord
from tfopt.model_store.withdrawals import new_change, read_changes, write_change
from tfopt.notifications.receiver import NoAnswerError, Receiver
from tfopt.reports import report_schema
from tfopt.run_records.run_record import RunRecord as RunFolderRecord

FAILED = replace(run(7, days_ago=0, blessed=False), regressions=["accuracy is 80%", "latency is 3 ms"])


@dataclass
class WebServer:
    """A web server that records the requests it took."""

    http: ThreadingHTTPServer | None = None
    status: int = 204
    delay: float = 0.0
    requests: list[tuple[dict[str, str], str]] = field(default_factory=list)  # headers, body
    received: list[str] = field(default_factory=list)  # bodies of all requests
    url: str = ""
    refused: str = "\0"  # bodies with this text are answered with 400

    def start(self, port: int = 0) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                server.received.append(body)
                if server.delay:
                    self.connection.sendall(b"HTTP/1.1 204 Slow\r\n")  # a header comes, and its end does not
                    time.sleep(server.delay)
                status = 400 if server.refused in body else server.status
                if status < 300:
                    server.requests.append((dict(self.headers), body))
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Location", "/elsewhere")
                    self.end_headers()

            def do_GET(self) -> None:
                raise AssertionError("a redirect was followed")

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/hook?token=secret"
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> int:
        assert self.http
        self.http.shutdown()
        self.http.server_close()
        return self.http.server_port

    def events(self) -> list[tuple[str, str]]:
        """Return kind and identifier of each notification."""
        bodies = [json.loads(body) for _, body in self.requests]
        assert [body["id"] for body in bodies] == [headers["Idempotency-Key"] for headers, _ in self.requests]
        return [(body["kind"], body["id"]) for body in bodies]

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events()]


@pytest.fixture
def server() -> Iterator[WebServer]:
    server = WebServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def job(tmp_path, monkeypatch, server) -> Path:
    """A folder with a run file, and a destination that was pushed to before there were notifications."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "pushed", [*DAILY, replace(run(8, days_ago=1, blessed=False), decision="earlier")])
    run_file(tmp_path, f"url: {server.url}")
    return tmp_path


def run_file(folder: Path, settings: str) -> None:
    lines = "\n".join(f"  {line}" for line in settings.splitlines())
    (folder / "run.yaml").write_text(
        f"pipeline: retrain\nroot: out\nvalues: {{destination: pushed}}\nnotify:\n{lines}\n"
    )


def notify(*words: str) -> int:
    return main(["notify", "-f", "run.yaml", *words])


def add(job: Path, record: RunRecord) -> None:
    (job / "pushed/history" / f"{record.decision}.json").write_text(json.dumps(report_schema.dump(record)))


def withdraw(job: Path, version: int = 6) -> None:
    destination = str(job / "pushed")
    write_change(destination, new_change(version, "withdrawn", "d", "wrong labels"), read_changes(destination))


def waiting(job: Path) -> list[str]:
    outbox = json.loads((job / "out/notifications/outbox.json").read_text())
    return [event["kind"] for event in outbox.get("pending", [])]


def test_variables_of_other_values_need_not_be_set(job, server):
    text = (job / "run.yaml").read_text()
    (job / "run.yaml").write_text(text.replace("{destination: pushed}", "{destination: pushed, data: '${NOT_SET}'}"))
    assert notify() == 0
    withdraw(job)
    assert (notify(), server.kinds()) == (0, ["withdrawn"])


def test_each_event_is_reported_once_and_earlier_ones_are_not(job, server, capsys):
    assert notify() == 0
    assert (notify(), server.requests) == (0, [])
    add(job, FAILED)
    withdraw(job)
    assert notify("--json") == 0
    assert notify() == 0
    assert sorted(server.kinds()) == ["not_blessed", "regressed", "withdrawn"]
    bodies = {body["kind"]: body for body in (json.loads(text) for _, text in server.requests)}
    assert bodies["not_blessed"]["text"] == FAILED.reason
    assert bodies["regressed"]["text"] == "accuracy is 80%; latency is 3 ms"
    assert bodies["withdrawn"]["text"].endswith("wrong labels")
    assert (bodies["withdrawn"]["version"], bodies["withdrawn"]["pipeline"]) == (6, "retrain")
    assert bodies["withdrawn"]["destination"] == str(job / "pushed")
    (headers, _) = server.requests[0]
    assert headers["Content-Type"] == "application/json"
    assert len(json.loads(capsys.readouterr().out.split("\n", 2)[2].rpartition("0 delivered")[0])["delivered"]) == 3


def test_a_destination_that_gets_no_push_is_reported_once_in_each_period(job, server, monkeypatch):
    run_file(job, f"url: {server.url}\nstale_days: 0.4")
    for each in (job / "pushed/history").iterdir():
        each.unlink()
    add(job, run(1, days_ago=1.0))
    assert (notify(), notify()) == (0, 0)
    assert server.kinds() == ["stale"]
    add(job, run(1, days_ago=1.3))
    assert notify() == 0
    assert server.kinds() == ["stale", "stale"]
    add(job, run(2, days_ago=0))
    assert (notify(), server.kinds()) == (0, ["stale", "stale"])
    add(job, run(1, days_ago=1.7))
    withdraw(job, 2)  # what is served is that old
    assert notify() == 0
    assert sorted(server.kinds()) == ["stale", "stale", "stale", "withdrawn"]


def test_a_destination_that_nothing_was_ever_pushed_to_is_stale_from_the_first_command_on(job, server):
    run_file(job, f"url: {server.url}\nstale_days: 2")
    for each in (job / "pushed/history").iterdir():
        each.unlink()
    assert (notify(), server.requests) == (0, [])
    outbox = job / "out/notifications/outbox.json"
    content = json.loads(outbox.read_text())
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=3)
    content["since"] = dict.fromkeys(content["since"], before.isoformat())
    outbox.write_text(json.dumps(content))
    assert notify() == 0
    assert server.kinds() == ["stale"]


def test_a_receiver_that_was_down_gets_the_event_later(job, server, capsys):
    assert notify() == 0
    port = server.stop()
    add(job, FAILED)
    assert notify() == 1
    error = capsys.readouterr().err
    assert "2 notifications wait" in error
    assert "refused" in error
    assert "secret" not in error
    withdraw(job)
    assert notify() == 1
    assert sorted(waiting(job)) == ["not_blessed", "regressed", "withdrawn"]
    server.start(port)
    assert notify() == 0
    assert sorted(server.kinds()) == ["not_blessed", "regressed", "withdrawn"]
    assert waiting(job) == []


@pytest.mark.parametrize("status", [500, 503, 404, 302])
def test_an_answer_other_than_success_is_no_delivery(job, server, capsys, status):
    assert notify() == 0
    add(job, replace(FAILED, regressions=[]))
    server.status = status
    assert notify() == 1
    assert f"refused not_blessed: HTTP {status}" in capsys.readouterr().err
    server.status = 200
    assert (notify(), server.kinds()) == (0, ["not_blessed"])


def test_a_notification_that_is_always_refused_does_not_stop_the_others(job, server):
    assert notify() == 0
    add(job, FAILED)
    withdraw(job)
    server.refused = "regressed"
    assert notify() == 1
    assert sorted(server.kinds()) == ["not_blessed", "withdrawn"]
    assert waiting(job) == ["regressed"]


def test_a_receiver_that_answers_too_slowly_is_asked_again(job, server):
    run_file(job, f"url: {server.url}\ntimeout: 0.2")
    assert notify() == 0
    add(job, replace(FAILED, regressions=[]))
    server.delay = 5.0
    begin = time.monotonic()
    with pytest.raises(NoAnswerError, match=r"no answer within 0.2 s"):
        Receiver(server.url, timeout=0.2).send(next(iter(_events(job))))
    assert time.monotonic() - begin < 2
    assert notify() == 1
    assert waiting(job) == ["not_blessed"]
    server.delay = 0.0
    server.requests.clear()
    assert (notify(), server.kinds()) == (0, ["not_blessed"])


def _events(job: Path):
    from tfopt.notifications.events import find_destination_events

    now = datetime.datetime.now(datetime.UTC)
    return find_destination_events("retrain", str(job / "pushed"), 30, now, now)


def test_a_process_that_is_killed_while_it_sends_sends_again(job, server):
    assert notify() == 0
    add(job, replace(FAILED, regressions=[]))
    server.delay = 5.0
    fork = fork_command(["notify", "-f", str(job / "run.yaml")], job, "notify")
    while not server.received:
        time.sleep(0.01)
    os.kill(fork.pid, signal.SIGKILL)
    assert fork.wait() == -signal.SIGKILL
    server.delay = 0.0
    assert notify() == 0
    assert len(server.received) == 2
    assert len(set(server.received)) == 1


@pytest.mark.nightly
def test_a_process_that_is_killed_at_any_moment_loses_no_event(job, server):
    expected = {"not_blessed", "regressed", "withdrawn"}
    kill_at, status, twice = 0, -9, 0
    while status:
        kill_at += 1
        case = job / str(kill_at)
        (case / "tmp").mkdir(parents=True)
        write(case / "pushed", DAILY)
        run_file(case, f"url: {server.url}")
        words = ["notify", "-f", str(case / "run.yaml")]
        assert main(words) == 0
        server.requests.clear()
        add(case, FAILED)
        withdraw(case)
        status = fork_command(words, case, "notify", kill_at).wait()
        assert main(words) == 0
        events = server.events()
        assert {kind for kind, _ in events} == expected
        assert len(set(events)) == 3  # what is repeated has the same identifier
        twice += len(events) > 3
        assert waiting(case) == []
    assert kill_at > 8
    assert twice  # killed between delivery and record


def test_templates_and_headers_are_sent(job, server, monkeypatch):
    monkeypatch.setenv("TOKEN", "s3cret")
    body = """body: '{"text": {{ (kind ~ ": " ~ text) | tojson }}, "v": {{ version or 0 }}}'"""
    run_file(job, f"url: {server.url}\nevents: [regressed]\nheaders: {{authorization: 'Bearer ${{TOKEN}}'}}\n{body}")
    assert notify() == 0
    add(job, replace(FAILED, regressions=['"worse"\nby <5 %>']))
    assert notify() == 0
    [(headers, text)] = server.requests
    assert json.loads(text) == {"text": 'regressed: "worse"\nby <5 %>', "v": 0}
    assert headers["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in (job / "out/notifications/outbox.json").read_text()


@pytest.mark.parametrize(
    ("settings", "received", "fix"),
    [
        ("events: [regressed]", "notify without url", "add url"),
        ("url: ftp://host/x", "notify.url: no such address", "https://HOST/PATH"),
        ("url: https://", "notify.url: no such address", "https://HOST/PATH"),
        ("url: 'https://host:99999/x'", "notify.url: no such address", "https://HOST/PATH"),
        ("url: 'https://host/a b'", "notify.url: no such address", "%20"),
        ("url: https://me:secret@host/x", "notify.url with a user", "Authorization"),
        ("url: https://host\nevents: [regresed]", "notify.events: regresed", "did you mean regressed?"),
        ("url: https://host\nstale_days: -1", "notify.stale_days: -1", "stale_days: 30"),
        ("url: https://host\nurls: x", "notify.urls", "did you mean url?"),
        ('url: https://host\nheaders: {A: "s3cret\\nB: c"}', "notify.headers.A", "line breaks"),
        ("url: https://host\nbody: '{{ tetx }}'", "notify.body: 'tetx' is undefined", "tojson"),
        ("url: https://host\nbody: '{{ text'", "notify.body: unexpected end", "tojson"),
        ("url: https://host\nbody: '{{ text.__class__.mro() }}'", "notify.body: access to attribute", "tojson"),
        ("""url: https://host\nbody: '{"text": "{{ text }}"}'""", "notify.body makes no JSON", "| tojson"),
    ],
)
@pytest.mark.parametrize("command", ["notify", "plan"])
def test_wrong_settings_are_refused_by_line_before_a_run(job, settings, received, fix, command, capsys):
    run_file(job, settings)
    assert main([command, "-f", "run.yaml"]) == 1
    error = capsys.readouterr().err
    assert f"run.yaml, line {5 + settings.count(chr(10))}: {received}" in error or f"line 4: {received}" in error
    assert fix in error
    assert "secret" not in error
    assert "s3cret" not in error


def test_text_that_is_no_json_needs_its_content_type(job, server):
    run_file(job, f"url: {server.url}\nheaders: {{Content-Type: text/plain}}\nbody: '{{{{ text }}}}'")
    assert notify() == 0
    add(job, replace(FAILED, regressions=[]))
    assert notify() == 0
    assert server.requests[0][1] == FAILED.reason


DAG = '''
from tests.toys import count
from tfopt import Input, Steps
from tfopt.artifacts import Files
from tfopt.trace import Inherited


def counting(steps: Steps, data: Input[Files], *, limit: Inherited) -> None:
    """Count."""
    steps(count, data=data, limit=limit)
'''


def test_a_failed_run_is_reported_and_keeps_its_own_error(job, server, capsys):
    (job / "counting.py").write_text(DAG)
    (job / "data").mkdir()
    (job / "data/one").write_text("a file, where the step reads a folder of them as one")
    settings = (
        f"pipeline: counting.py\nroot: own\nengine: process\nvalues: {{data: data}}\nnotify: {{url: '{server.url}'}}\n"
    )
    (job / "run.yaml").write_text(settings)
    server.status = 500
    assert main(["run", "-f", "run.yaml"]) == 1
    output = capsys.readouterr().err
    assert "1 notifications wait for the next tfopt run or tfopt notify" in output
    assert output.rindex("tfopt: ") > output.index("notifications wait")  # the error of the run is the last one
    server.status = 200
    (job / "counting.py").write_text(DAG.replace("data=data", "data=data, unit='lines'"))
    shutil.rmtree(job / "data")
    (job / "data").write_text("one")
    assert main(["run", "-f", "run.yaml"]) == 0
    assert server.kinds() == ["failed"]
    [(_, body)] = server.requests
    assert json.loads(body)["text"].startswith("the run failed: ")


def test_a_killed_run_is_reported_by_the_next_command(job, server):
    assert notify() == 0
    killed = RunFolderRecord("retrain", "running", "2026-11-28T00:00:00+00:00", platform.node(), 2**22 + 1, "0.2.0")
    (job / "out/run.json").write_text(json.dumps(report_schema.dump(killed)))
    assert (notify(), notify()) == (0, 0)
    assert server.kinds() == ["failed"]


def test_an_unreadable_destination_is_an_error_after_the_delivery(job, server, capsys):
    assert notify() == 0
    withdraw(job)
    server.status = 500
    assert notify() == 1
    server.status = 200
    (job / "pushed/history/damaged.json").write_text("{")
    assert notify() == 1
    assert f"{job / 'pushed'}: " in capsys.readouterr().err
    assert server.kinds() == ["withdrawn"]


def test_a_run_file_without_a_receiver_is_refused(job):
    (job / "run.yaml").write_text("pipeline: retrain\n")
    with pytest.raises(ComponentError, match="no receiver"):
        main(["notify", "-f", "run.yaml", "--debug"])
