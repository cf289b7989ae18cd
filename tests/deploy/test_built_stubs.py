"""Test that builds generate the type stubs: a wheel by way of the source distribution, and an editable install."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.deploy.distributions import distribution

GENERATOR = Path(__file__).parents[2] / "tools" / "type_stubs.py"


@pytest.fixture(scope="module")
def stubs(tmp_path_factory) -> dict[str, bytes]:
    """Return the type stubs of these declarations."""
    folder = tmp_path_factory.mktemp("stubs")
    subprocess.run([sys.executable, GENERATOR, folder], check=True)
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*.pyi")}


@pytest.fixture(scope="module")
def wheel(built) -> Path:
    return next(built.glob("*.whl"))


@pytest.fixture
def sources(tmp_path) -> Path:
    """Return a copy of the sources without generated files."""
    distribution().copy_sources(tmp_path / "source")
    assert [file.name for file in tmp_path.rglob("*.pyi")] == ["__init__.pyi"]  # of tfopt, written by hand
    return tmp_path / "source"


def build_editable(folder: Path) -> subprocess.CompletedProcess:
    """Build an editable install of a folder, as pip does."""
    code = "import setuptools.build_meta as backend; backend.build_editable('.')"
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.nightly  # daily: the stubs of an editable install
def test_the_wheel_has_the_type_stubs_of_the_declarations(wheel, stubs):
    assert len(stubs) == 3
    with zipfile.ZipFile(wheel) as archive:
        packed = {name: archive.read(name) for name in archive.namelist() if name.endswith(".pyi")}
    assert packed.pop("tfopt/__init__.pyi")  # written by hand
    assert packed == stubs


def test_a_type_checker_finds_the_stubs_of_an_installed_wheel(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    program = "from tfopt.components import export_tflite\nexport_tflite('a', 'b', precision='int88')\n"
    (tmp_path / "program.py").write_text(program)
    command = [sys.executable, "-m", "mypy", "--python-executable", "venv/bin/python", "program.py"]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert re.findall(r"^(\S+) error: .*\[(\S+)\]$", done.stdout, re.M) == [("program.py:2:", "arg-type")]


def test_an_editable_install_writes_the_stubs_into_the_sources(sources, stubs):
    (sources / "tfopt" / "dag" / "component_steps.pyi").write_text("of older declarations")
    done = build_editable(sources)
    assert done.returncode == 0, done.stderr
    assert {name: (sources / name).read_bytes() for name in stubs} == stubs


def test_a_build_without_stubs_fails_and_says_why(sources):
    (sources / "components" / "prune" / "component.py").write_text("raise RuntimeError('no such thing')\n")
    done = build_editable(sources)
    assert done.returncode == 1
    assert "RuntimeError: no such thing" in done.stderr
    assert "received: an error of tools/type_stubs.py, above\nexpected: type stubs of the components" in done.stderr
    assert "\nhow to fix: correct the declaration; if a package is missing, install it, or build with" in done.stderr
