"""Test the generated type stubs: what mypy accepts and refuses, and what an editor completes."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jedi
import pytest

from tfopt.component import components
from tfopt.dag.dag import Dag
from tfopt.dag.tracing import Steps

ROOT = Path(__file__).parents[2]
PIPELINE = """
from tfopt import Input, Steps
from tfopt.artifacts import Examples, OnnxModel, SavedModel
from tfopt.trace import Inherited

def lite(
    steps: Steps, model: Input[SavedModel], onnx: Input[OnnxModel], examples: Input[Examples], *, precision: Inherited
) -> None:
    folded = steps.fold_batch_norm(model=model)
    {}
"""
STEP = 'steps.export_tflite(id="lite", model=folded.outputs["folded"], examples=examples, '
ACCEPTED = {
    "call": """
        from pathlib import Path
        from tfopt.components import evaluate, export_tflite, train
        lite = export_tflite("a", Path("b"), precision="int8", max_degradation=0, recipe=("dense=int8",))["exported"]
        evaluate(baseline="a", candidates=["a", lite], examples="c", evaluation="d", label="label")
        print(export_tflite.parameters["precision"].choices, train.summary)
        """,
    "objects": """
        import keras
        import numpy as np
        import tfopt
        from tfopt.components import evaluate, export_tflite
        model, x = keras.Sequential([]), np.zeros((4, 2))
        lite = export_tflite(model=model, exported="a", examples=(x, x))["exported"]
        evaluate(baseline=model, candidates=[lite, model], examples={"eval": (x, x)}, evaluation="d")
        print(tfopt.optimize(model, {"a": x, "label": x}, formats=["tflite"]).model.predict(x))
        """,
    "pipeline": PIPELINE.format(STEP + "precision=precision)"),
    "pipeline_word": PIPELINE.format(STEP + 'precision="int16x8", recipe=["a=int8"])'),
    "pipeline_input": PIPELINE.format("steps.evaluate(baseline=model, candidates=[onnx, model], examples=examples)"),
    "tfx": """
        from tfopt.tfx import steps
        steps.export_tflite(model=1, precision="int8")
        """,
    "kfp": """
        from tfopt.kfp import Steps
        Steps("images").evaluate(baseline=1, candidates=[1], examples=1, label="label")
        """,
}
REFUSED = {
    "call_word": ('from tfopt.components import export_tflite\nexport_tflite("a", "b", precision="int88")', "arg-type"),
    "call_name": ('from tfopt.components import export_tflite\nexport_tflite("a", "b", precison="int8")', "call-arg"),
    "call_missing": ('from tfopt.components import export_tflite\nexport_tflite("a")', "call-arg"),
    "call_type": ('from tfopt.components import prune\nprune("a", "b", "c", "label", sparsity="half")', "arg-type"),
    "call_object": ('from tfopt.components import export_tflite\nexport_tflite(model=3, exported="b")', "arg-type"),
    "call_data": ('from tfopt.components import export_tflite\nexport_tflite("a", "b", examples=3)', "arg-type"),
    "component": ("from tfopt.components import export_tflit", "attr-defined"),
    "public_name": ("import tfopt\ntfopt.Stepps", "attr-defined"),
    "step_word": (PIPELINE.format(STEP + 'precision="int88")'), "arg-type"),
    "step_name": (PIPELINE.format("steps.export_tflit(model=model)"), "attr-defined"),
    "step_parameter": (PIPELINE.format(STEP + 'precison="int8")'), "call-arg"),
    "step_artifact": (PIPELINE.format("steps.fold_batch_norm(model=onnx)"), "arg-type"),
    "step_missing": (PIPELINE.format("steps.evaluate(baseline=model, examples=examples)"), "call-arg"),
    "tfx_word": ('from tfopt.tfx import steps\nsteps.export_tflite(model=1, precision="int88")', "arg-type"),
    "tfx_name": ("from tfopt.tfx import steps\nsteps.export_tflit(model=1)", "attr-defined"),
    "kfp_word": ('from tfopt.kfp import steps\nsteps.export_tflite(model=1, precision="int88")', "arg-type"),
    "kfp_name": ('from tfopt.kfp import Steps\nSteps("images").export_tflit(model=1)', "attr-defined"),
}


@pytest.fixture(scope="module", autouse=True)
def stubs():
    """Write the stubs of these declarations, as a build does: those here may be of others, or missing."""
    subprocess.run([sys.executable, ROOT / "tools" / "type_stubs.py"], check=True)


@pytest.fixture(scope="module")
def errors(tmp_path_factory) -> dict[str, list[str]]:
    """Return the codes of mypy's errors by file: one process for all files, with the cache of `make check`."""
    folder = tmp_path_factory.mktemp("typed")
    for name, text in (ACCEPTED | {name: text for name, (text, _) in REFUSED.items()}).items():
        lines = text.strip("\n").splitlines()
        indent = len(lines[0]) - len(lines[0].lstrip())
        (folder / f"{name}.py").write_text("\n".join(line[indent:] for line in lines) + "\n")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *sorted(folder.glob("*.py"))]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert printed.returncode == 1, printed.stderr
    reported: dict[str, list[str]] = {}
    for file, code in re.findall(r"^(.+?):\d+: error: .*\[([\w-]+)\]$", printed.stdout, re.MULTILINE):
        reported.setdefault(Path(file).stem, []).append(code)
    return reported


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_correct_file_has_no_error(errors: dict[str, list[str]], name: str):
    assert name not in errors


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_file_has_its_error_only(errors: dict[str, list[str]], name: str):
    assert errors[name] == [REFUSED[name][1]]


def completions(text: str) -> Iterator[str]:
    """Yield what an editor completes at the end of a text."""
    script = jedi.Script(text, path=ROOT / "unsaved.py", project=jedi.Project(ROOT))
    yield from (completion.name for completion in script.complete())


def test_an_editor_completes_components_and_parameters():
    assert "export_tflite" in completions("from tfopt.components import export_tf")
    assert "precision=" in completions("from tfopt.components import export_tflite\nexport_tflite(preci")
    assert "fold_batch_norm" in completions("from tfopt import Steps\ndef lite(steps: Steps):\n    steps.fold")


def test_a_notebook_completes_steps():
    assert set(components()) <= set(dir(Steps(Dag("lite", "", {}, {}))))
