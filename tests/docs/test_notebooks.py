"""Execute the notebooks of the documentation, one of them in a kernel of its own, and test what they show."""

import contextlib
import io
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"
NAMES = ("optimize_keras_model", "optimize_saved_model", "own_dag", "read_decision")
# Shorter than in the notebook: these tests do not check speed.
SHORTER = {
    "epochs=4": "epochs=1",
    'formats=["tflite", "onnx"]': 'formats=["tflite float32"]',
    "seconds=2": 'seconds=0.1, objective="size", batch_sizes=["1"]',
    "seconds=1": "seconds=0.1",
    '"candidates": [folded, lite, int8]': '"candidates": [lite, int8]',
}


def execute_in_kernel(name: str, folder: Path) -> list[str]:
    """Execute a notebook in a folder, in a kernel of its own, and return the HTML and the text that its cells show."""
    import nbclient
    import nbformat

    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not any(output["output_type"] == "error" for output in outputs)
    return [output.get("text") or output["data"].get("text/html", "") for output in outputs]


def execute(name: str, folder: Path) -> list[str]:
    """Do the same in the shell of a kernel in this process, which has imported TensorFlow."""
    import nbformat
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    settings = Config({"HistoryManager": {"enabled": False}})
    shell = InteractiveShell(user_module=ModuleType(f"notebook_{name}"), config=settings)
    shown = []
    with contextlib.chdir(folder):
        for cell in nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells:
            if cell.cell_type == "code":
                source = cell.source
                for value, less in SHORTER.items():
                    source = source.replace(value, less)
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    result = shell.run_cell(source)
                result.raise_error()
                data, _ = shell.display_formatter.format(result.result)
                shown += [printed.getvalue(), data.get("text/html", "")]
    return shown


@pytest.fixture(scope="module")
def optimized(tmp_path_factory) -> tuple[Path, list[str]]:
    """Return the folder in which the first notebook was executed, and what it shows."""
    folder = tmp_path_factory.mktemp("optimized")
    return folder, execute("optimize_saved_model", folder)


def test_every_notebook_is_tested_and_the_longest_with_shorter_work():
    source = "".join(file.read_text() for file in NOTEBOOKS.glob("optimize_*.ipynb")).replace('\\"', '"')
    assert all(value in source for value in SHORTER)
    assert {file.stem for file in NOTEBOOKS.glob("*.ipynb")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_stored_without_outputs(name: str):
    content = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())
    cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)


@pytest.mark.nightly
@pytest.mark.usefixtures("short_serving_check")
def test_the_notebook_optimizes_a_keras_model(tmp_path: Path):
    shown = execute("optimize_keras_model", tmp_path)
    assert any("<td>tflite float32</td>" in text and "<iframe sandbox" in text for text in shown)
    assert any(re.search(r"tflite float32 .* selected: ", text) for text in shown)
    assert any(
        re.search(r"tflite float32: [\d,]+ bytes in .*\n\d\d\.\d% of the held-out digits", text) for text in shown
    )
    assert any("Evaluation on" in text and "tflite int8" in text for text in shown)


def test_the_notebook_optimizes_a_saved_model(optimized: tuple[Path, list[str]]):
    folder, shown = optimized
    frames = [text for text in shown if "<iframe sandbox" in text]
    assert len(frames) == 2  # the inspection and the decision
    assert any(re.search(r"Evaluation on \d{3} examples of split eval, differences to", text) for text in shown)
    assert any("faster" in text and "Latency with threads" in text for text in shown)
    assert json.loads((folder / "decision" / "decision.json").read_text())["blessed"]


@pytest.mark.nightly  # daily: the README's own DAG
def test_the_notebook_runs_an_own_dag(tmp_path: Path):
    shown = execute("own_dag", tmp_path)
    assert any("float61" in text and "float16" in text for text in shown)
    assert any("Run of 4 steps" in text for text in shown)
    assert any("Evaluation on" in text for text in shown)


def test_the_notebook_reads_a_decision(optimized: tuple[Path, list[str]]):
    folder, _ = optimized
    shown = execute_in_kernel("read_decision", folder)
    selected = json.loads((folder / "decision" / "decision.json").read_text())["selected"]
    assert any(text.startswith(f"{selected} - blessed: True") for text in shown)
    assert sum("accuracy 0." in text for text in shown) == 1
