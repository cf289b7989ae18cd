"""Test the servers that fork the children of a run: who forks, what is shared, and that nothing stays."""

import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from tests.process_tree import has_ended, wait_until
from tfopt.errors import ComponentError, MachineError
from tfopt.processes import call_server
from tfopt.processes.call_server import MOST_SERVERS, call_servers
from tfopt.processes.subprocess_call import run_in_child


def parents():
    return os.getpid(), os.getppid(), "tensorflow" in sys.modules


def sleep(file):
    file.write_text(f"{os.getpid()} {os.getppid()}")
    time.sleep(120)


def fork_and_die(file):
    if os.fork() == 0:  # keeps the pipe to the parent open
        file.write_text(str(os.getpid()))
        time.sleep(120)
    wait_until(file.exists)
    os.kill(os.getpid(), signal.SIGSEGV)


def servers() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    return [
        child for child in children if "tfopt.processes.call_server" in child.cmdline() and child.ppid() == os.getpid()
    ]


@pytest.fixture(autouse=True)
def _no_servers_are_left(monkeypatch):
    """Leave the servers of the test session out, and check that those of a test end."""
    monkeypatch.setattr(call_server, "_open", None)
    before = set(servers())
    yield
    assert set(servers()) == before


def test_calls_of_a_run_are_forks_of_one_process_that_has_imported_tensorflow():
    with call_servers(), call_servers():
        calls = [run_in_child(parents, doing="looking") for _ in range(3)]
    assert len({child for child, _, _ in calls}) == 3
    assert len({server for _, server, _ in calls} - {os.getpid()}) == 1
    assert all(is_imported for _, _, is_imported in calls)


def test_each_environment_has_its_server_and_the_oldest_ends():
    before = set(servers())  # of the test session
    with call_servers():
        first = [run_in_child(parents, doing="x", environment={"TFOPT_X": str(number)})[1] for number in range(4)]
        assert len(set(first)) == 4
        assert len(set(servers()) - before) == MOST_SERVERS
        assert run_in_child(parents, doing="x", environment={"TFOPT_X": "3"})[1] == first[3]
        assert run_in_child(parents, doing="x", environment={"TFOPT_X": "0"})[1] not in first


def test_a_call_without_an_end_is_killed_and_the_server_goes_on(tmp_path):
    with call_servers():
        with pytest.raises(ComponentError, match="no end after 1 s"):
            run_in_child(sleep, tmp_path / "pid", doing="sleeping", limit_s=1)
        child, server = map(int, (tmp_path / "pid").read_text().split())
        assert not psutil.pid_exists(child)
        assert run_in_child(parents, doing="looking")[1] == server


def test_a_crash_is_reported_although_a_child_of_the_process_goes_on(tmp_path):
    with call_servers(), pytest.raises(ComponentError, match="was killed by SIGSEGV"):
        run_in_child(fork_and_die, tmp_path / "pid", doing="crashing", limit_s=60)
    psutil.Process(int((tmp_path / "pid").read_text())).kill()


def test_a_killed_server_ends_its_call_as_a_machine_error_and_is_replaced(tmp_path):
    def kill_server() -> None:
        os.kill(int(wait_until(lambda: file.exists() and file.read_text()).split()[1]), signal.SIGKILL)

    file = tmp_path / "pid"
    with call_servers():
        killer = threading.Thread(target=kill_server)
        killer.start()
        with pytest.raises(MachineError, match="was killed by SIGKILL"):
            run_in_child(sleep, file, doing="sleeping", limit_s=60)
        killer.join()
        assert run_in_child(parents, doing="looking")[1] != int(file.read_text().split()[1])


def test_threads_share_a_server():
    results = []
    with call_servers():
        run_in_child(parents, doing="looking")
        threads = [threading.Thread(target=lambda: results.append(run_in_child(parents, doing="x"))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({child for child, _, _ in results}) == 8
    assert len({server for _, server, _ in results}) == 1


def test_nothing_is_left_5_seconds_after_the_kill_of_a_run(tmp_path):
    program = (
        "import pathlib, sys; from tests.processes import test_call_server as test;"
        "test.call_servers().__enter__(); test.run_in_child(test.sleep, pathlib.Path(sys.argv[1]), doing='sleeping')"
    )
    file = tmp_path / "pid"
    run = subprocess.Popen([sys.executable, "-c", program, file], stderr=subprocess.DEVNULL)
    processes = [psutil.Process(int(pid)) for pid in wait_until(lambda: file.exists() and file.read_text()).split()]
    run.kill()
    run.wait()
    wait_until(lambda: all(map(has_ended, processes)), 5)
