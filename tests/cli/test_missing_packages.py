"""Test that each package that may be missing is reported with the extra that installs it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tfopt.error_messages import machine_error

ROOT = Path(__file__).parents[2]
# The code that imports these describes what to install: no extra of tfopt has them.
OWN_ERRORS = {"tensorrt", "tensorflow_serving", "tritonclient"}
ALWAYS_INSTALLED = {
    "argcomplete",
    "docstring_parser",
    "fsspec",
    "jinja2",
    "lets_plot",
    "numpy",
    "PIL",
    "pyarrow",
    "rich",
}
ALWAYS_INSTALLED |= {"yaml"}

WITHOUT = """
import sys
from importlib.machinery import PathFinder
missing = sys.argv.pop(1)
class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == missing else super().find_spec(name, path, target)
sys.meta_path = [Finder if finder is PathFinder else finder for finder in sys.meta_path]
from tfopt.cli.main import main
sys.exit(main())
"""


def imported_packages() -> set[str]:
    """Return the top-level names of other packages that the library imports anywhere."""
    files = [file for folder in ("tfopt", "components", "pipelines") for file in (ROOT / folder).rglob("*.py")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_bytes()))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"tfopt"}


def test_each_imported_package_is_in_an_extra_or_always_installed():
    packages = imported_packages()
    assert packages >= OWN_ERRORS | ALWAYS_INSTALLED
    for package in packages - OWN_ERRORS:
        error = machine_error(ModuleNotFoundError(f"No module named '{package}'", name=package))
        assert error is not None
        if package in ALWAYS_INSTALLED:
            assert error.fix == "pip install tfopt, with its dependencies", package
        else:
            assert re.fullmatch(r"pip install 'tfopt\[[\w-]+\]'", error.fix), package


@pytest.mark.parametrize(
    ("missing", "extra", "words"),
    [
        ("kfp", "kfp", ["compile", "retrain", "-o", "out.yaml"]),
        pytest.param("kfp", "kfp", ["compile", "evaluate", "-o", "out.yaml"], marks=pytest.mark.nightly),
        ("kfp", "kfp", ["submit", "mine.py", "--endpoint", "http://localhost:1", "--set", "data=s3://a/b"]),
        ("urllib3", "kfp", ["schedule", "--list", "--endpoint", "http://localhost:1"]),
        ("croniter", "kfp", ["schedule", "mine.py", "--cron", "0 0 3 * * 1", "--endpoint", "http://localhost:1"]),
        ("apache_beam", "beam", ["prepare_examples", "--data", "rows.csv", "--examples", "out"]),
        # daily: Beam, whose import fails in a step as well
        pytest.param(
            "keras",
            "tensorflow",
            ["train", "--examples", "examples", "--module", "model.py", "--trained", "out"],
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "optuna",
            "tune",
            ["tune_recipe", "--model", "keras_model", "--examples", "examples", "--recipe", "out", "--tuned", "tuned"],
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_command_names_the_extra(missing, extra, words, tmp_path, request):
    (tmp_path / "mine.py").write_text(
        "from tests.toys import count\nfrom tfopt import Input\nfrom tfopt.artifacts import Files\n\n"
        'def mine(steps, data: Input[Files]) -> None:\n    """Count."""\n    steps(count, data=data)\n'
    )
    (tmp_path / "rows.csv").write_text("x,label\n1,0\n2,1\n")
    (tmp_path / "model.py").write_text("import keras\ndef build_model(): return keras.Model()\n")
    if "examples" in words:
        (tmp_path / "examples").symlink_to(request.getfixturevalue("digits_examples"))
    if "keras_model" in words:
        (tmp_path / "keras_model").symlink_to(request.getfixturevalue("digits_model"))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, missing, *words],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert f"how to fix: pip install 'tfopt[{extra}]'" in done.stderr
    assert "tfopt: error\nreceived: " in done.stderr
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.yaml").exists()
