"""Run pytest on a copy of the repository in a process that ends, with all that it started, at any rate."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
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


def environment_of(tree: Path, scratch: Path) -> dict[str, str]:
    """Return the environment in which Python imports this copy of the repository, also in child processes.

    The finder of the editable installation is the last one in ``sys.meta_path``, so that PYTHONPATH takes precedence.
    """
    scratch.mkdir(exist_ok=True)
    return {**os.environ, "PYTHONPATH": str(tree), "TMPDIR": str(scratch), MARK: uuid.uuid4().hex}


def check_import(tree: Path, scratch: Path) -> None:
    """Raise RuntimeError if a child process, which runs in another folder, would not import the copy of tfopt."""
    words = [sys.executable, "-P", "-c", "import tfopt; print(tfopt.__file__)"]
    options = {"cwd": scratch.parent, "env": environment_of(tree, scratch), "capture_output": True, "text": True}
    imported = subprocess.run(words, check=True, **options).stdout.strip()
    if not Path(imported).is_relative_to(tree):
        raise RuntimeError(f"tests would import {imported}, not the copy in {tree}")


def run_tests(
    tree: Path, tests: tuple[str, ...], scratch: Path, limit_s: float, stop: threading.Event, *options: str
) -> TestRun:
    """Run pytest on test files or single tests of a copy.

    Args:
        tree: The copy.
        tests: The files or tests.
        scratch: Folder for temporary files.
        limit_s: Time after which the process is killed.
        stop: Ends the process if it is set.
        options: Further options of pytest.

    Raises:
        Stopped: If the event was set.
    """
    environment, results = environment_of(tree, scratch), scratch / "results.xml"
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1", f"--junitxml={results}"]
    begun = time.monotonic()
    with (scratch / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *words, *options, *tests],
            cwd=tree,
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
