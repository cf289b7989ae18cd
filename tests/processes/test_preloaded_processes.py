"""Test the servers that fork the children of a run: who forks, what is shared, and that nothing stays."""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.process_tree import has_ended, wait_until
from tfopt.artifacts import Report
from tfopt.component import Output, component
from tfopt.errors import ComponentError, MachineError
from tfopt.processes import preloaded_processes
from tfopt.processes.preloaded_processes import preloading, start_ahead, start_worker
from tfopt.processes.subprocess_call import run_in_child, run_isolated
from tfopt.processes.worker_process import CallFailed
from tfopt.runtimes import subprocess_worker


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
    return [child for child in psutil.Process().children() if "tfopt.processes.preloaded_processes" in command(child)]


def command(process: psutil.Process) -> list[str]:
    """Return the command line of a process; that of a zombie, which another test may have left, is empty."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.fixture(scope="module")
def running():
    """Servers with one process that has imported TensorFlow, as in a run."""
    shared = preloaded_processes.PreloadedProcesses()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preloaded_processes, "_open", shared)
        run_in_child(parents, doing="starting")
    yield shared
    shared.close()


@pytest.fixture(autouse=True)
def _no_servers_are_left(monkeypatch, running):
    """Leave the servers of the test session out, and check that those of a test end."""
    monkeypatch.setattr(preloaded_processes, "_open", None)
    before = set(servers())
    yield
    assert set(servers()) == before


@pytest.fixture
def within_run(monkeypatch, running):
    """Let this process fork the servers of `running`."""
    monkeypatch.setattr(preloaded_processes, "_open", running)


@pytest.fixture
def quick_servers(monkeypatch, tmp_path):
    """Let servers start without the import of TensorFlow, which takes seconds: they find an empty package instead."""
    for name in ("tensorflow", "keras"):
        (tmp_path / "empty" / name).mkdir(parents=True)
        (tmp_path / "empty" / name / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "empty"), prepend=os.pathsep)


def test_calls_of_a_run_are_forks_of_one_process_that_has_imported_tensorflow(within_run):
    with preloading(), preloading():
        calls = [run_in_child(parents, doing="looking") for _ in range(3)]
    assert len({child for child, _, _ in calls}) == 3
    assert len({server for _, server, _ in calls} - {os.getpid()}) == 1
    assert all(is_imported for _, _, is_imported in calls)


def log_and_return():
    logging.getLogger("tfopt.child").info("of the child")
    logging.getLogger("tfopt.child").debug("not shown")
    return os.getpid()


def test_isolated_work_is_in_a_fork_during_a_run_only_and_its_messages_are_logged_here(within_run, caplog):
    caplog.set_level(logging.INFO, "tfopt")
    with preloading():
        assert run_isolated(log_and_return, doing="looking") == os.getpid()
        caplog.clear()
        with preloading(is_run=True):
            assert run_isolated(log_and_return, doing="looking") != os.getpid()
        assert [(entry.name, entry.getMessage()) for entry in caplog.records] == [("tfopt.child", "of the child")]
        assert run_isolated(log_and_return, doing="looking") == os.getpid()


def test_a_worker_is_a_fork_during_a_run_and_a_new_process_otherwise(within_run, monkeypatch, tmp_path):
    module, server = subprocess_worker.__name__, psutil.Process(run_in_child(parents, doing="looking")[1])
    with start_worker(module, log=tmp_path / "log", environment={}) as worker:
        (fork,) = server.children()
        for _ in range(2):
            with pytest.raises(CallFailed, match="AttributeError: 'Worker' object has no attribute '_runtime'"):
                worker.call("call", {})
    assert has_ended(fork) and not server.children()
    monkeypatch.setattr(preloaded_processes, "_open", None)
    with start_worker(module, log=tmp_path / "log", environment={}):
        assert any(module in command(child) for child in psutil.Process().children())


def variables():
    return os.getppid(), tempfile.gettempdir(), {name: os.environ.get(name) for name in ("AWS_PROFILE", "PATH")}


def test_variables_that_no_import_reads_are_those_of_the_call_in_forks_of_one_server(within_run, monkeypatch, tmp_path):
    server, folder, before = run_in_child(variables, doing="looking")
    assert Path(folder).parent.parent == Path(tempfile.gettempdir())
    assert before == {"AWS_PROFILE": None, "PATH": os.environ["PATH"]}
    own = {"TMPDIR": str(tmp_path), "AWS_PROFILE": "team", "PATH": "/nowhere"}
    result = run_in_child(variables, doing="looking", environment=own)
    assert result == (server, str(tmp_path), {"AWS_PROFILE": "team", "PATH": "/nowhere"})
    monkeypatch.delenv("PATH")
    server_again, other, rest = run_in_child(variables, doing="looking")
    assert server_again == server and other != folder and rest == {"AWS_PROFILE": None, "PATH": None}


def test_each_environment_has_its_server_and_the_oldest_ends(monkeypatch, quick_servers):
    monkeypatch.setattr(preloaded_processes, "MOST_SERVERS", 1)
    before = set(servers())
    with preloading():
        first, second, third, again = (
            run_in_child(parents, doing="x", environment={"OTHER_X": value})[1] for value in "0110"
        )
        assert len({first, second, again}) == 3 and third == second
        assert len(set(servers()) - before) == 1


def test_variables_that_an_import_sets_do_not_start_another_server(quick_servers):
    with preloading():
        same = [{}, {"TF2_BEHAVIOR": "1"}, {"TPU_ML_PLATFORM_VERSION": "2"}]
        (server,) = {run_in_child(parents, doing="x", environment=variables)[1] for variables in same}
        assert run_in_child(parents, doing="x", environment={"TF2_BEHAVIOR": "0"})[1] != server


def test_a_server_is_started_ahead_in_a_run_that_will_fork(quick_servers):
    before = set(servers())
    with preloading(is_run=True):
        start_ahead()
        assert set(servers()) == before
    with preloading(is_run=True, will_fork=True):
        start_ahead()
        start_ahead()
        (server,) = set(servers()) - before
        assert run_in_child(parents, doing="looking")[1] == server.pid
        assert set(servers()) - before == {server}


def server_count(report: Output[Report]) -> None:
    """Write how many servers this process has."""
    report.write({"servers": len(servers())})


@pytest.mark.parametrize(("purpose", "is_ahead"), [("data", True), ("measurement", False)])
def test_no_server_starts_next_to_a_step_that_measures(quick_servers, tmp_path, purpose, is_ahead):
    before = len(servers())
    with preloading(is_run=True, will_fork=True):
        component(image="tf", purpose=purpose)(server_count)(report=tmp_path / "report")
    assert Report(tmp_path / "report").read() == {"servers": before + is_ahead}


def test_a_call_without_an_end_is_killed_and_the_server_goes_on(within_run, tmp_path):
    with preloading():
        with pytest.raises(ComponentError, match="no end after 1 s"):
            run_in_child(sleep, tmp_path / "pid", doing="sleeping", limit_s=1)
        child, server = map(int, (tmp_path / "pid").read_text().split())
        assert not psutil.pid_exists(child)
        assert run_in_child(parents, doing="looking")[1] == server


def test_a_crash_is_reported_although_a_child_of_the_process_goes_on(within_run, tmp_path):
    with preloading(), pytest.raises(ComponentError, match="was killed by SIGSEGV"):
        run_in_child(fork_and_die, tmp_path / "pid", doing="crashing", limit_s=60)
    psutil.Process(int((tmp_path / "pid").read_text())).kill()


def test_a_killed_server_ends_its_call_as_a_machine_error_and_is_replaced(tmp_path, quick_servers):
    def kill_server() -> None:
        os.kill(int(wait_until(lambda: file.exists() and file.read_text()).split()[1]), signal.SIGKILL)

    file = tmp_path / "pid"
    with preloading():
        killer = threading.Thread(target=kill_server)
        killer.start()
        with pytest.raises(MachineError, match="was killed by SIGKILL"):
            run_in_child(sleep, file, doing="sleeping", limit_s=60)
        killer.join()
        assert run_in_child(parents, doing="looking")[1] != int(file.read_text().split()[1])


def test_threads_share_a_server(within_run):
    results = []
    with preloading():
        run_in_child(parents, doing="looking")
        threads = [threading.Thread(target=lambda: results.append(run_in_child(parents, doing="x"))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({child for child, _, _ in results}) == 8
    assert len({server for _, server, _ in results}) == 1


def test_nothing_is_left_5_seconds_after_the_kill_of_a_run(tmp_path, quick_servers):
    program = (
        "import pathlib, sys; from tests.processes import test_preloaded_processes as test;"
        "test.preloading().__enter__(); test.run_in_child(test.sleep, pathlib.Path(sys.argv[1]), doing='sleeping')"
    )
    file = tmp_path / "pid"
    run = subprocess.Popen([sys.executable, "-c", program, file], stderr=subprocess.DEVNULL)
    processes = [psutil.Process(int(pid)) for pid in wait_until(lambda: file.exists() and file.read_text()).split()]
    run.kill()
    run.wait()
    wait_until(lambda: all(map(has_ended, processes)), 5)


NIGHTLY = [pytest.param(name, marks=pytest.mark.nightly) for name in ("SIGHUP", "SIGINT")]


@pytest.mark.parametrize("ending", ["SIGKILL", "SIGTERM", *NIGHTLY])
def test_a_server_that_still_imports_ends_with_the_run(tmp_path, quick_servers, ending):
    (tmp_path / "empty" / "tensorflow" / "__init__.py").write_text("import time; time.sleep(120)\n")
    program = (
        "import pathlib, signal, sys, threading, time; from tests.processes import test_preloaded_processes as test\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # nohup ignores it
        "with test.preloading(is_run=True, will_fork=True):\n"
        "    thread = threading.Thread(target=test.start_ahead)\n"
        "    thread.start(), thread.join()  # the server outlives the thread that started it\n"
        "    (server,) = test.preloaded_processes._open._servers.values()\n"
        "    pathlib.Path(sys.argv[1]).write_text(str(server._process.pid)), time.sleep(120)\n"
    )
    file = tmp_path / "pid"
    run = subprocess.Popen([sys.executable, "-c", program, file], stderr=subprocess.DEVNULL)
    server = psutil.Process(int(wait_until(lambda: file.exists() and file.read_text())))
    time.sleep(0.2)
    assert not has_ended(server)
    run.send_signal(getattr(signal, ending))
    run.wait(30)
    wait_until(lambda: has_ended(server), 5)
