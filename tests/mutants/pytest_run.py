"""Run pytest on a copy of the repository in a process that ends, with all that it started, at any rate."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import psutil

from tests.process_tree import marked

MARK = "TFOPT_MUTANT"  # environment variable by which the processes of a run are recognized
POLL_S = 0.1


class Stopped(Exception):  # noqa: N818  (a request, not an error)
    """The program ends before this process has."""


@dataclass(frozen=True)
class TestRun:
    """The result of pytest.

    Attributes:
        failed: The tests that failed, with their files; a file alone if it cannot be imported.
        seconds: Duration.
        end: How the process ended if it wrote no results, such as ``no end after 300 s``; empty otherwise.
    """

    __test__ = False

    failed: tuple[str, ...]
    seconds: float
    end: str = ""


def copy_tree(root: Path, target: Path) -> None:
    """Copy the files of a repository that git does not ignore."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        source, copy = root / name, target / name
        if source.is_symlink() or source.is_file():  # not if it was removed since the last commit
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)


def create_interpreter(tree: Path) -> Path:
    """Create a virtual environment in a copy: the packages of this one, but tfopt from the copy; return its Python.

    A path in PYTHONPATH would not be enough: some tests start processes with another one.
    """
    packages = Path(sysconfig.get_paths()["purelib"])
    names = [file.name for file in sorted(packages.glob("*.pth")) if not file.name.startswith("__editable__.tfopt-")]
    own = tree / ".venv" / packages.relative_to(sys.prefix)
    own.mkdir(parents=True)
    added = [f"import site; site.addpackage({str(packages)!r}, {name!r}, None)" for name in names]
    lines = [str(tree), str(packages), *added]
    (own / "copy.pth").write_text("\n".join(lines))
    original = Path(sys.executable).resolve()
    (tree / ".venv" / "pyvenv.cfg").write_text(f"home = {original.parent}\ninclude-system-site-packages = false\n")
    python = tree / ".venv" / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(original)
    return python


def environment_of(scratch: Path) -> dict[str, str]:
    """Return the environment of the tests, whose temporary files are in a folder of their own."""
    scratch.mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(scratch), MARK: uuid.uuid4().hex}


def check_import(python: Path, tree: Path, scratch: Path) -> None:
    """Raise RuntimeError if a child process, which runs in another folder, would not import the copy of tfopt."""
    words = [python, "-P", "-c", "import tfopt; print(tfopt.__file__)"]
    run = subprocess.run(words, cwd=scratch.parent, env=environment_of(scratch), capture_output=True, text=True)
    if run.returncode or run.stderr or not Path(run.stdout.strip()).is_relative_to(tree):
        raise RuntimeError(f"tests would not import tfopt from the copy in {tree}: {run.stdout}{run.stderr}")


def run_tests(
    python: Path, tests: tuple[str, ...], scratch: Path, limit_s: float, stop: threading.Event, *options: str
) -> TestRun:
    """Run pytest on test files or single tests of a copy.

    Args:
        python: The interpreter of the copy.
        tests: The files or tests.
        scratch: Folder for temporary files.
        limit_s: Time after which the process is killed.
        stop: Ends the process if it is set.
        options: Further options of pytest.

    Raises:
        Stopped: If the event was set.
    """
    environment, results = environment_of(scratch), scratch / "results.xml"
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1", f"--junitxml={results}"]
    begun = time.monotonic()
    with (scratch / "log").open("wb") as log:
        process = subprocess.Popen(
            [python, *words, *options, *tests],
            cwd=python.parents[2],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the program, which ends this process
        )
        try:
            code = _wait(process, begun + limit_s, stop)
        finally:
            _end_processes(process, environment[MARK])
    seconds = time.monotonic() - begun
    if code is None:
        return TestRun((), seconds, f"no end after {limit_s:g} s")
    if not results.is_file():
        last = (scratch / "log").read_text(errors="replace").strip().splitlines()[-1:]
        return TestRun((), seconds, f"pytest ended with {code}: {''.join(last)[:200]}")
    return TestRun(tuple(_failed(results)), seconds)


def _wait(process: "subprocess.Popen[bytes]", end: float, stop: threading.Event) -> int | None:
    """Return the exit status; None if the process does not end in time."""
    while process.poll() is None:
        if stop.wait(POLL_S):
            raise Stopped
        if time.monotonic() > end:
            return None
    return process.returncode


def _end_processes(process: "subprocess.Popen[bytes]", mark: str) -> None:
    """Kill the process and all processes of its tests, until there are none."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            _kill(child)
    process.kill()
    process.wait()
    while running := [other for other in marked(MARK, mark) if other.status() != psutil.STATUS_ZOMBIE]:
        for other in running:
            _kill(other)
        time.sleep(POLL_S)


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGKILL)


def _failed(results: Path) -> list[str]:
    failed = []
    for case in ET.parse(results).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            file = case.get("file")
            failed.append(f"{file}::{case.get('name')}" if file else str(case.get("name")))
    return failed
