"""Test that the commands and examples of the README and of the pages for own models and DAGs run."""

import contextlib
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tfopt.cli.main import main
from tfopt.storage.staging import link_tree

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
OWN_DAG = (ROOT / "docs" / "own_dag.md").read_text()
OWN_MODEL = (ROOT / "docs" / "own_model.md").read_text()
PAGES = (README, OWN_DAG, *((ROOT / "docs" / f"{name}.md").read_text() for name in ("own_model", "gpu")))
COMMANDS = list(  # each once, in the order of the pages, because later ones use the results of earlier ones
    dict.fromkeys(
        line
        for page in PAGES
        for block in re.findall(r"```console\n(.*?)```", page, re.S)
        for line in block.replace("\\\n", " ").splitlines()
        if line.startswith("tfopt ")
    )
)

optimize = importlib.import_module("tfopt.pipelines.optimize")  # the module, not the pipeline
retrain = importlib.import_module("tfopt.pipelines.retrain")
# Some candidates of each run. `tests/pipelines` has the wiring of all of them, and `tests/contract` makes one with each
# component.
CANDIDATES = {
    "digits": ("tflite float32",),
    "my_model": ("folded",),  # an export would load TensorFlow a second time, for the words in front of it
    "optimize": ("openvino float32",),
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, digits_model, digits_examples) -> Path:
    """Create the folder that the commands assume: a bare SavedModel, examples, and a table."""
    folder = tmp_path_factory.mktemp("readme")
    link_tree(Path(digits_model) / "Format-Serving", folder / "my_saved_model")
    link_tree(Path(digits_examples), folder / "examples")
    rows = [f"{number % 37},{('red', 'blue')[number % 2]},{number % 37 * 1.5 + number % 2}" for number in range(600)]
    (folder / "rows.csv").write_text("\n".join(["size,color,price", *rows]))
    with contextlib.chdir(folder):
        exec(python_block(README, "digits.csv"), {})
    return folder


def python_block(page: str, word: str) -> str:
    return next(block for block in re.findall(r"```python\n(.*?)```", page, re.S) if word in block)


def test_the_pages_have_commands():
    assert len(COMMANDS) >= 6


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("short_serving_check")
def test_a_command_of_the_pages_runs(command: str, workspace: Path, monkeypatch, capsys):
    words = shlex.split(command)[1:]
    monkeypatch.chdir(workspace)
    if words[0] == "run":
        run_file = re.search(r"-f (\w+)/", command)
        names = CANDIDATES[run_file[1] if run_file else "optimize"]
        monkeypatch.setattr(retrain, "FORMATS", names)
        monkeypatch.setattr(optimize, "CANDIDATES", names)
        words += ["--set", "seconds=0.1", "--set", 'batch_sizes=["1"]']  # short: this test does not check speed
        words += ["--set", "epochs=1"] if run_file else []
    assert main(words) == 0
    if words[0] == "run":
        shown = capsys.readouterr().out
        assert "selected" in shown, shown
        assert list((workspace / (run_file[1] if run_file else "") / "pushed").iterdir())


@pytest.mark.nightly
@pytest.mark.usefixtures("short_serving_check")
@pytest.mark.parametrize("page", [OWN_MODEL, README])
def test_a_model_in_memory_is_optimized(page: str, tmp_path: Path, monkeypatch):
    code = python_block(page, "tfopt.optimize(").replace(
        "y[900:]))  #", 'y[900:]), seconds=0.1, objective="size", formats=["tflite float32"])  #'
    )
    names: dict[str, Any] = {}
    if page == README:
        digits = python_block(OWN_MODEL, "tfopt.optimize(").partition("result =")[0]
        exec(digits, names)
        names |= {"x_test": names["x"][900:], "y_test": names["y"][900:]}
        monkeypatch.setattr(optimize, "CANDIDATES", ("tflite float32",))
    with contextlib.chdir(tmp_path):
        exec(code, names)
        assert page == README or names["lite"].card.name == "tflite int8"
    assert names["result"].decision.selected in ("tflite float32", "sequential")  # of the README by speed
    assert (tmp_path / "runs" / "optimize" / "run.json").is_file()
    assert page == README or len(names["labels"]) == 897


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_all_commands_run_in_processes_with_all_candidates(workspace: Path):
    for command in COMMANDS:
        words = shlex.split(command)[1:]
        words += ["--set", "seconds=0.2"] if words[0] == "run" else []
        program = [sys.executable, "-m", "tfopt.run", *words]
        done = subprocess.run(program, cwd=workspace, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert words[0] != "run" or "selected" in done.stdout


def test_the_dag_of_the_guide_compiles_and_runs(workspace: Path, monkeypatch):
    monkeypatch.chdir(workspace)
    Path("lite.py").write_text(python_block(OWN_DAG, "def lite"))
    for words in (
        ["compile", "lite.py", "-o", "lite.yaml"],
        ["run", "lite.py", "--set", "model=my_saved_model", "--set", "examples=examples"],
    ):
        assert main(words) == 0
    assert list(Path("runs", "lite").rglob("Format-Serving/tflite"))


def test_the_first_example_has_real_rows(workspace: Path):
    lines = (workspace / "digits.csv").read_text().splitlines()
    assert len(lines) == 1798
    assert lines[0].startswith("pixel_0_0,") and lines[0].endswith(",digit")
    assert {line.rpartition(",")[2] for line in lines[1:]} == {str(digit) for digit in range(10)}


def test_every_file_the_readme_links_to_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (ROOT / target).exists(), target
