"""Test tests/mutants: the mutants of this repository can be applied, and those of a small one are found or not."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.mutants.__main__ import main
from tests.mutants.mutant import read_mutants
from tests.mutants.pytest_run import MARK
from tests.process_tree import wait_until

ROOT = Path(__file__).parents[2]
LIBRARY = '''\
"""A library."""

import time


def subtract(a: int, b: int) -> int:
    return a - b


def wait(seconds: float) -> None:
    time.sleep(seconds)
'''
TESTS = """\
import os
import subprocess
import sys

import tfopt


def test_subtract_in_a_child_process(tmp_path):
    words = [sys.executable, "-P", "-c", "import sys, tfopt; sys.exit(tfopt.subtract(3, 1) != 2)"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert subprocess.run(words, cwd=tmp_path, env=environment).returncode == 0


def test_wait():
    subprocess.Popen(["sleep", "60"], start_new_session=True)
    tfopt.wait(0)
"""
MUTANT = """
[[mutant]]
file = "tfopt/__init__.py"
old = "{old}"
new = "{new}"
breaks = "{breaks}"
tests = ["tests/{tests}"]
"""
SLEEP = ("sleep(seconds)", "sleep(99)", "the time", "test_library.py")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch) -> Path:
    """Return the folder of temporary files; pytest starts there without plugins, which takes a second less."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def repository(tmp_path: Path):
    """Return a function that writes a repository with some mutants: old text, new text, description, test file."""
    root = tmp_path / "repository"
    files = {
        "tfopt/__init__.py": LIBRARY,
        "tests/test_library.py": TESTS,
        "tests/test_red.py": "def test_red():\n    assert False\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "--quiet", root], check=True)

    def write(*mutants: tuple[str, str, str, str]) -> Path:
        names = "old", "new", "breaks", "tests"
        table = root / "tests" / "mutants" / "mutants.toml"
        table.parent.mkdir()
        table.write_text("".join(MUTANT.format(**dict(zip(names, mutant, strict=True))) for mutant in mutants))
        return root

    return write


def test_each_mutant_can_be_applied_to_this_repository(tmp_path: Path):
    mutants = read_mutants(ROOT)
    assert len(mutants) >= 64
    for mutant in mutants:
        copy = tmp_path / mutant.file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((ROOT / mutant.file).read_text())
        mutant.apply(tmp_path)
        if copy.suffix == ".py":  # the others are templates
            compile(copy.read_text(), mutant.file, "exec", dont_inherit=True)
        assert all((ROOT / file).is_file() for file in mutant.tests), str(mutant)


def test_a_fault_is_found_in_a_child_process_and_a_red_test_finds_nothing(repository, scratch, capsys):
    mutants = (
        ("a - b", "a + b", "the sign", "test_library.py"),
        ("import time", "import time ", "nothing", "test_library.py"),
        ("a - b", "b - a", "the order", "test_red.py"),
    )
    report = scratch.parent / "results.json"
    assert main(["--root", str(repository(*mutants)), "--workers", "3", "--json", str(report)]) == 1
    *lines, order, count = capsys.readouterr().out.splitlines()
    assert any(
        "the sign: found by tests/test_library.py::test_subtract_in_a_child_process in" in line for line in lines
    )
    assert any("nothing: SURVIVED tests/test_library.py in" in line for line in lines)
    assert "the order: NOT COUNTED, because without it too: tests/test_red.py::test_red" in order
    assert count.startswith("3 mutants: 1 found, 1 survived, 1 not counted (")
    states = {entry["breaks"]: entry["state"] for entry in json.loads(report.read_text())}
    assert states == {"the sign": "found", "nothing": "survived", "the order": "not counted"}
    assert not processes_in(scratch)
    assert not list(scratch.iterdir())


@pytest.mark.nightly
def test_a_hang_is_found_at_the_time_limit(repository, scratch, capsys):
    root = repository(SLEEP, ("sleep(seconds)", "sleep(seconds, 1)", "the arguments", "test_library.py"))
    assert main(["--root", str(root), "--only", "the time", "--limit", "2"]) == 0
    assert "the time: found by no end after 2 s in" in capsys.readouterr().out
    assert not list(scratch.iterdir())


@pytest.mark.nightly
def test_ctrl_c_leaves_no_process_and_no_folder(repository, scratch):
    words = [sys.executable, "-m", "tests.mutants", "--root", str(repository(SLEEP))]
    process = subprocess.Popen(words, cwd=ROOT, env={**os.environ, "TMPDIR": str(scratch)})
    wait_until(lambda: "sleep" in {other.info["name"] for other in processes_in(scratch)})  # of its tests
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert not processes_in(scratch)
    assert not list(scratch.iterdir())


def processes_in(scratch: Path) -> list[psutil.Process]:
    """Return the processes of mutants whose temporary files are in a folder."""
    processes = psutil.process_iter(["environ", "name"])  # None if it is not readable
    environments = [(process, process.info["environ"] or {}) for process in processes]
    return [process for process, names in environments if MARK in names and str(scratch) in names.get("TMPDIR", "")]
