"""Forks of a process that has imported everything: each is new, and what becomes of one is no other's business."""

import signal

import psutil
import pytest

from tests.process_tree import has_ended, wait_until
from tfopt.processes import rpc as asked
from tfopt.processes.fork_server import Fork
from tfopt.processes.rpc import AskedProcess, Died, Refused


@pytest.fixture
def origin(tmp_path, monkeypatch):
    monkeypatch.setattr(asked, "PATIENCE", 60.0)  # what would hang fails
    with AskedProcess("tests.forked", log=tmp_path / "origin.log") as process:
        yield process


def test_each_is_a_process_of_its_own_with_nothing_of_the_others_and_imports_nothing_again(origin, tmp_path):
    with Fork(origin, tmp_path / "log") as one, Fork(origin, tmp_path / "log") as other:
        assert one.ask("keep", "a") == ["a"]
        assert other.ask("keep", "b") == ["b"]
        assert one.ask("keep", "c") == ["a", "c"]
        (number, parent, begun), (second, same_parent, same) = one.ask("origin"), other.ask("origin")
        assert number != second
        assert (parent, begun) == (same_parent, same)
        assert {child.pid for child in psutil.Process(parent).children()} == {number, second}
    wait_until(lambda: not psutil.Process(parent).children())
    with Fork(origin, tmp_path / "log") as third:
        assert third.ask("keep", "d") == ["d"]


def test_it_prints_behind_what_the_last_one_printed_and_the_first_process_elsewhere(origin, tmp_path):
    for word in ("one", "two"):
        with Fork(origin, tmp_path / "log") as fork:
            fork.ask("say", word)
    assert (tmp_path / "log").read_text() == "one\none!\ntwo\ntwo!\n"
    assert not origin.log.read_text()


def test_what_it_refuses_ends_nothing(origin, tmp_path):
    with Fork(origin, tmp_path / "log") as fork:
        with pytest.raises(Refused, match="ValueError: cannot do that") as refusal:
            fork.ask("fail")
        assert not isinstance(refusal.value, Died)
        assert fork.ask("keep", "a") == ["a"]


@pytest.mark.parametrize(
    ("call", "end"),
    [
        (("wait", signal.SIGSEGV), "was killed by SIGSEGV"),
        (("wait", signal.SIGKILL), "was killed by SIGKILL"),
        (("leave",), "ended with status 1\n.*SystemExit: 3"),
    ],
)
def test_the_death_of_one_is_told_and_leaves_the_others(origin, tmp_path, call, end):
    with Fork(origin, tmp_path / "log") as dying, Fork(origin, tmp_path / "other") as other:
        with pytest.raises(Died, match=f"(?s){end}"):
            dying.ask(*call)
        with pytest.raises(Died, match=f"(?s){end}"):
            dying.ask("keep", "a")
        assert other.ask("keep", "b") == ["b"]
    with Fork(origin, tmp_path / "log") as next_one:
        assert next_one.ask("keep", "c") == ["c"]


def test_one_that_nobody_can_ask_any_more_ends_at_once_and_says_nothing(origin, tmp_path):
    with Fork(origin, tmp_path / "log") as fork:
        fork._pipe.close()
        assert fork.wait() == 0
    assert not (tmp_path / "log").read_text()


def test_one_that_never_answers_is_stopped(origin, tmp_path, monkeypatch):
    with Fork(origin, tmp_path / "log") as fork:
        fork.ask("keep", "a")  # it is there
        with monkeypatch.context() as impatient:
            impatient.setattr(asked, "PATIENCE", 1.0)
            with pytest.raises(Died, match="gave no answer to 'wait' in 1 seconds"):
                fork.ask("wait", signal.SIGCONT)
        number = fork._number
    assert not psutil.pid_exists(number)
    with Fork(origin, tmp_path / "log") as other:
        assert other.ask("keep", "a") == ["a"]


@pytest.mark.parametrize("how", ["kill", "close"])
def test_with_the_first_process_all_end(origin, tmp_path, how):
    fork = Fork(origin, tmp_path / "log")
    process = psutil.Process(fork.ask("origin")[0])
    if how == "kill":
        origin.kill()
        wait_until(lambda: has_ended(process), 10)
        with pytest.raises(Died, match="was killed by SIGKILL"):
            fork.ask("origin")
        with pytest.raises(Died, match="was killed by SIGKILL"):
            Fork(origin, tmp_path / "log")
    else:  # as when the parent itself is killed: nobody holds the other ends any more
        origin._pipe.close()
        fork._pipe.close()
        wait_until(lambda: has_ended(process), 10)
        assert origin.wait() == 0
