"""Test the fork server: forks are independent, and failures of one do not affect the others."""

import signal
from pathlib import Path

import psutil
import pytest

from tests.process_tree import has_ended, wait_until
from tfopt.processes import worker_process
from tfopt.processes.fork_server import ForkedWorker
from tfopt.processes.worker_process import CallFailed, WorkerDied, WorkerProcess

SEARCH_PATH = {"PYTHONPATH": str(Path(__file__).parents[2])}  # workers do not search the working folder


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_process, "TIMEOUT_S", 60.0)  # a hanging test fails
    with WorkerProcess("tests.fork_worker", log=tmp_path / "origin.log", environment=SEARCH_PATH) as process:
        yield process


def test_forks_are_separate_processes_without_new_imports(server, tmp_path):
    with ForkedWorker(server, tmp_path / "log") as one, ForkedWorker(server, tmp_path / "log") as other:
        assert one.call("keep", "a") == ["a"]
        assert other.call("keep", "b") == ["b"]
        assert one.call("keep", "c") == ["a", "c"]
        (pid, parent, begun), (second, same_parent, same) = one.call("origin"), other.call("origin")
        assert pid != second
        assert (parent, begun) == (same_parent, same)
        assert {child.pid for child in psutil.Process(parent).children()} == {pid, second}
    wait_until(lambda: not psutil.Process(parent).children())
    with ForkedWorker(server, tmp_path / "log") as third:
        assert third.call("keep", "d") == ["d"]


def test_forks_append_to_their_log_and_the_server_has_its_own(server, tmp_path):
    for word in ("one", "two"):
        with ForkedWorker(server, tmp_path / "log") as fork:
            fork.call("say", word)
    assert (tmp_path / "log").read_text() == "one\none!\ntwo\ntwo!\n"
    assert not server.log.read_text()


def test_a_worker_continues_after_an_exception(server, tmp_path):
    with ForkedWorker(server, tmp_path / "log") as fork:
        with pytest.raises(CallFailed, match="ValueError: cannot do that") as refusal:
            fork.call("fail")
        assert not isinstance(refusal.value, WorkerDied)
        assert fork.call("keep", "a") == ["a"]


@pytest.mark.parametrize(
    ("call", "end"),
    [
        (("wait", signal.SIGSEGV), "was killed by SIGSEGV"),
        (("wait", signal.SIGKILL), "was killed by SIGKILL"),
        (("leave",), "ended with status 1\n.*SystemExit: 3"),
    ],
)
def test_the_death_of_a_fork_is_reported_and_does_not_affect_others(server, tmp_path, call, end):
    with ForkedWorker(server, tmp_path / "log") as dying, ForkedWorker(server, tmp_path / "other") as other:
        with pytest.raises(WorkerDied, match=f"(?s){end}"):
            dying.call(*call)
        with pytest.raises(WorkerDied, match=f"(?s){end}"):
            dying.call("keep", "a")
        assert other.call("keep", "b") == ["b"]
    with ForkedWorker(server, tmp_path / "log") as next_one:
        assert next_one.call("keep", "c") == ["c"]


def test_a_fork_exits_silently_when_its_pipe_closes(server, tmp_path):
    with ForkedWorker(server, tmp_path / "log") as fork:
        fork._pipe.close()
        assert fork.wait() == 0
    assert not (tmp_path / "log").read_text()


def test_a_fork_is_killed_after_the_timeout(server, tmp_path, monkeypatch):
    with ForkedWorker(server, tmp_path / "log") as fork:
        fork.call("keep", "a")  # the fork has started
        with monkeypatch.context() as impatient:
            impatient.setattr(worker_process, "TIMEOUT_S", 1.0)
            with pytest.raises(WorkerDied, match="gave no answer to 'wait' in 1 seconds"):
                fork.call("wait", signal.SIGCONT)
        pid = fork._pid
    assert not psutil.pid_exists(pid)
    with ForkedWorker(server, tmp_path / "log") as other:
        assert other.call("keep", "a") == ["a"]


@pytest.mark.parametrize("how", ["kill", "close"])
def test_forks_end_with_the_fork_server(server, tmp_path, how):
    fork = ForkedWorker(server, tmp_path / "log")
    process = psutil.Process(fork.call("origin")[0])
    if how == "kill":
        server.kill()
        wait_until(lambda: has_ended(process), 10)
        with pytest.raises(WorkerDied, match="was killed by SIGKILL"):
            fork.call("origin")
        with pytest.raises(WorkerDied, match="was killed by SIGKILL"):
            ForkedWorker(server, tmp_path / "log")
    else:  # as if the parent were killed: the other ends of the pipes are closed
        server._pipe.close()
        fork._pipe.close()
        wait_until(lambda: has_ended(process), 10)
        assert server.wait() == 0
