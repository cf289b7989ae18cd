"""Test errors of the machine: each is named in three parts, and leaves nothing half written."""

import contextlib
import errno
import io
import os
import pwd
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kill.faults import ERRORS, GOOD, run_faults
from tests.process_tree import marked, wait_until
from tfopt.error_messages import path_error
from tfopt.storage import scratch

DAG = '''
from tests.kill.kill_dag import split
from tfopt.artifacts import Files
from tfopt.component import Input


def split_dag(steps, data: Input[Files]) -> None:
    """Split."""
    steps(split, data=data)
'''
PARTS = ("received: ", "expected: ", "how to fix: ")


@pytest.fixture
def dag(tmp_path: Path) -> Path:
    file = tmp_path / "split_dag.py"
    file.write_text(DAG)
    return file


def start(*words, limits: dict[int, int] | None = None, **options) -> subprocess.Popen:
    """Start the command, with limits of resources."""

    def limit() -> None:
        for kind, size in (limits or {}).items():
            resource.setrlimit(kind, (size, size))

    command = [sys.executable, "-m", "tfopt.run", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "preexec_fn": limit}
    return subprocess.Popen(command, **(pipes | options))


def refused(process: subprocess.Popen) -> str:
    """Return the error of a process that ended with one in three parts."""
    _, error = process.communicate(timeout=120)
    assert process.returncode == 1, error
    assert all(part in error for part in PARTS) and "Traceback" not in error, error
    return error


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=False, capture_output=True)
    if mount.returncode:
        pytest.skip(f"cannot mount a file system: {mount.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


BEAM = pytest.param("beam", 80, marks=pytest.mark.nightly)  # TFX's metadata store needs more room


@pytest.mark.parametrize(("engine", "room"), [("process", 4), BEAM])
def test_a_full_disk_under_the_root_is_named(engine, room, dag, tmp_path):
    with mounted(tmp_path / "small", "size=200k"):
        (tmp_path / "small" / "fill").write_bytes(bytes(1024 * (200 - room)))
        words = ["run", dag, "--set", f"data={dag}", "--root", tmp_path / "small" / "root", "--engine", engine]
        assert "room for the outputs" in refused(start(*words))
        assert not list(tmp_path.rglob("report.json"))


def test_a_read_only_root_is_named(dag, tmp_path):
    with mounted(tmp_path / "read_only", "ro"):
        words = ["run", dag, "--set", f"data={dag}", "--root", tmp_path / "read_only" / "root", "--engine", "process"]
        assert "a file system that can be written" in refused(start(*words))


def test_a_limit_of_file_sizes_is_named(dag, tmp_path):
    limits = {resource.RLIMIT_FSIZE: 20_000}
    words = ["tests.toys:count", "--data", dag, "--report", tmp_path / "out", "--notes", "x" * 60_000]
    assert "a limit of file sizes" in refused(start(*words, limits=limits))
    assert sorted(path.name for path in tmp_path.iterdir()) == [dag.name]


@pytest.mark.nightly
def test_a_limit_of_file_sizes_is_named_with_tfx(dag, tmp_path):
    limits = {resource.RLIMIT_FSIZE: 20_000}
    words = ["run", dag, "--set", f"data={dag}", "--root", tmp_path / "root", "--engine", "beam"]
    assert "a limit of file sizes" in refused(start(*words, limits=limits))


def test_too_little_memory_is_named(digits_model, tmp_path):
    words = ["fold_batch_norm", "--model", digits_model, "--folded", tmp_path / "out"]
    assert "more memory" in refused(start(*words, limits={resource.RLIMIT_AS: 900 << 20}))
    assert list(tmp_path.iterdir()) == []


def test_no_home_is_named(monkeypatch):
    def find_none(user: int) -> None:
        raise KeyError(user)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", find_none)  # as for a user of a container who is not in /etc/passwd
    with pytest.raises(RuntimeError) as error:
        Path("~/models").expanduser()
    assert path_error(error.value).fix == "set HOME to a folder that can be written"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EINVAL, errno.ENOLCK])
def test_an_error_of_the_file_system_without_a_name_has_three_parts(number):
    error = path_error(OSError(number, os.strerror(number)))
    assert error.received == os.strerror(number) and error.expected.startswith(("a path", "a file system"))
    assert path_error(OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))) is None


@pytest.mark.parametrize(
    "closed", ["0 1 2", *(pytest.param(number, marks=pytest.mark.nightly) for number in ("0", "1", "2"))]
)
def test_closed_standard_streams_do_not_matter(closed, dag, tmp_path):
    words = ["tests.toys:count", "--data", str(dag), "--report", str(tmp_path / "out")]
    closing = " ".join(f"{number}>&-" for number in closed.split())
    run = subprocess.run(
        ["bash", "-c", f'"$@" {closing}', "bash", sys.executable, "-m", "tfopt.run", *words], check=False
    )
    assert run.returncode == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.json"]


def test_a_full_standard_output_is_named():
    with Path("/dev/full").open("w") as full:
        assert "room for the outputs" in refused(start("list", stdout=full))


SLEEPER = '''
import subprocess
from pathlib import Path
from tfopt.artifacts import Files, Report
from tfopt.component import Input, Output, component
from tfopt.processes.parent_death import bound_command


@component(image="tf")
def sleeper(data: Input[Files], report: Output[Report]) -> None:
    """Wait for a child.

    Args:
        data: Anything.
        report: Never complete.
    """
    (report.path / "half").write_text("half")
    child = subprocess.Popen(bound_command("sleep", "120"))
    print("started", flush=True)
    child.wait()
'''


def test_sigterm_ends_a_command_and_its_processes_with_143(dag, tmp_path):
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TMPDIR": str(temporary), "TFOPT_TEST": str(tmp_path)}
    process = start("sleeper:sleeper", "--data", dag, "--report", tmp_path / "out", env=environment)
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGTERM)
    error = process.communicate(timeout=30)[1]
    assert process.returncode == 143 and "tfopt: terminated" in error
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]
    assert list(temporary.iterdir()) == []
    wait_until(lambda: not marked("TFOPT_TEST", str(tmp_path)), 10)


@pytest.mark.nightly  # daily: the other engine, in test_process_engine.py
def test_two_runs_in_one_root_are_both_whole_with_tfx(dag, tmp_path):
    root = tmp_path / "root"
    words = ["run", dag, "--set", f"data={dag}", "--root", root, "--engine", "beam"]
    first = start(*words)
    wait_until((root / "run.log").exists, 60)  # written while it holds the lock
    first.send_signal(signal.SIGSTOP)
    second = start(*words)
    waiting = next((line for line in second.stderr if "waiting for its end" in line), None)
    first.send_signal(signal.SIGCONT)
    errors = [run.communicate(timeout=200)[1] for run in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], errors
    assert waiting
    assert "reused" in errors[1]


def test_scratch_of_a_killed_process_is_removed_and_that_of_a_running_one_stays(tmp_path, monkeypatch):
    program = "import os, signal, sys, tempfile; from tfopt.storage.scratch import scratch_folder\n"
    program += "with scratch_folder():\n tempfile.mkdtemp(prefix='beam-temp')\n if sys.argv[1] == 'killed':\n"
    program += "  os.kill(os.getpid(), signal.SIGKILL)\n print('ready', flush=True); input()"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    running = subprocess.Popen(
        [*command, "running"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert running.stdout.readline() == "ready\n"
    subprocess.run([*command, "killed"], env=environment, check=False)
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with scratch.scratch_folder():
        folders = [path.name for path in tmp_path.iterdir()]
        assert sorted(int(name.split("-")[1]) for name in folders) == sorted([running.pid, os.getpid()])
    running.communicate("\n")
    assert [int(path.name.split("-")[1]) for path in tmp_path.iterdir()] == [os.getpid()]


@pytest.mark.parametrize("error", ["EIO", *(pytest.param(name, marks=pytest.mark.nightly) for name in ERRORS[1:])])
def test_a_call_that_fails_is_named_and_leaves_all_outputs_or_none(error, tmp_path):
    faults = list(run_faults(tmp_path, errors=[error]))
    assert {fault.kind.split()[1] for fault in faults} >= {"rename", "mkdir", "fsync", "lock", "write"}
    assert len(faults) >= 30 and [fault for fault in faults if fault.score != GOOD] == []


@pytest.mark.nightly
@pytest.mark.parametrize("error", ERRORS)
def test_a_call_of_a_pipeline_that_fails_is_named(error, tmp_path):
    assert [fault for fault in run_faults(tmp_path, "process", [error]) if fault.score != GOOD] == []


def test_records_and_logs_that_cannot_be_written_leave_nothing_and_are_no_traceback(tmp_path):
    faults = list(run_faults(tmp_path, "process", ["ENOSPC"], [(os, "replace"), (io, "write")]))
    assert len(faults) > 10 and [fault for fault in faults if fault.score != GOOD] == []
