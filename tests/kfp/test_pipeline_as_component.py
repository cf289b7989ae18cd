"""Test pipelines that are compiled as components: in a pipeline of Kubeflow's own SDK, between its components."""

import importlib.util
import os
import re
import shlex
import sys
from pathlib import Path

import kfp.local
import pytest
import yaml
from kfp import components, dsl
from kfp.compiler import Compiler
from kfp.local.subprocess_task_handler import SubprocessTaskHandler

from tests import toys
from tfopt.artifacts import Blessing, Decision, Files, Model
from tfopt.cli.main import main
from tfopt.component import Input
from tfopt.dag.tracing import load, pipelines, trace
from tfopt.errors import ComponentError

LITE = '''
from tfopt import Input, Steps
from tfopt.artifacts import Examples, SavedModel


def lite(steps: Steps, model: Input[SavedModel], examples: Input[Examples], *, precision: str = "int8"):
    """Fold and export.

    Args:
        steps: Adds the steps.
        model: A trained model.
        examples: Examples for calibration.
        precision: The precision of the exported model.
    """
    folded = steps.fold_batch_norm(model=model)
    lite = steps.export_tflite(model=folded.outputs["folded"], examples=examples, precision=precision)
    return {"lite": lite.outputs["exported"]}
'''


@dsl.component(base_image="python:3.11-slim", install_kfp_package=False)
def train_model(finished: str, model: dsl.Output[dsl.Model]) -> None:
    """A native component before ours."""
    import shutil

    shutil.copytree(finished, model.path)


@dsl.component(base_image="python:3.11-slim", install_kfp_package=False)
def measure_size(model: dsl.Input[dsl.Model]) -> int:
    """A native component after ours."""
    from pathlib import Path

    return sum(file.stat().st_size for file in Path(model.path).glob("*/tflite"))


@dsl.component(base_image="python:3.11-slim", install_kfp_package=False)
def deploy(model: dsl.Input[dsl.Model], decision: dsl.Input[dsl.Artifact]) -> None:
    """Another native component after ours."""


def test_optimize_stands_between_native_components(tmp_path):
    assert main(["compile", "optimize", "--as-component", "-o", str(tmp_path / "optimize.yaml")]) == 0
    optimize = components.load_component_from_file(str(tmp_path / "optimize.yaml"))

    @dsl.pipeline(name="own")
    def own(examples_uri: str, label: str = "digit") -> None:
        examples = dsl.importer(artifact_uri=examples_uri, artifact_class=dsl.Dataset).output
        trained = train_model(finished="/model").outputs["model"]
        optimized = optimize(model=trained, examples=examples, label=label, destination="s3://models/digits")
        deploy(model=optimized.outputs["selected"], decision=optimized.outputs["decision"])

    Compiler().compile(own, str(tmp_path / "own.yaml"))
    spec, platform = yaml.safe_load_all((tmp_path / "own.yaml").read_text())
    tasks = spec["root"]["dag"]["tasks"]
    assert tasks["optimize"]["inputs"]["artifacts"]["model"]["taskOutputArtifact"]["producerTask"] == "train-model"
    assert tasks["deploy"]["inputs"]["artifacts"]["model"]["taskOutputArtifact"] == {
        "outputArtifactKey": "selected",
        "producerTask": "optimize",
    }
    inner = spec["components"]["comp-optimize"]
    assert set(inner["outputDefinitions"]["artifacts"]) == {"selected", "decision", "blessing"}
    assert inner["dag"]["tasks"]["evaluate"]["inputs"]["artifacts"]["baseline"] == {"componentInputArtifact": "model"}
    assert not [task for task in inner["dag"]["tasks"] if "importer" in task]
    assert platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]


def test_the_pipelines_of_the_guide_compile(tmp_path, monkeypatch):
    guide = (Path(__file__).parents[2] / "docs" / "kubeflow.md").read_text()
    section = guide[guide.index("### In a pipeline of your own") : guide.index("## 4.")]
    monkeypatch.chdir(tmp_path)
    (command,) = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    assert main(shlex.split(command)[1:]) == 0
    Path("own.py").write_text("\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL)))
    spec = importlib.util.spec_from_file_location("own", "own.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for pipeline, names in (
        (module.train_and_optimize, {"train-model", "optimize", "announce"}),
        (module.compare_widths, {"evaluate"}),
    ):
        Compiler().compile(pipeline, "own.yaml")
        assert names < set(next(yaml.safe_load_all(Path("own.yaml").read_text()))["root"]["dag"]["tasks"])


def test_the_component_has_the_steps_and_parameters_of_the_pipeline(tmp_path):
    specs = []
    for option in ([], ["--as-component"]):
        assert main(["compile", "retrain", *option, "--with", "start", "-o", str(tmp_path / "p.yaml")]) == 0
        specs.append(next(yaml.safe_load_all((tmp_path / "p.yaml").read_text())))
    plain, component = (spec["root"] for spec in specs)
    sources = {"data", "module", "start"}
    assert set(plain["dag"]["tasks"]) - set(component["dag"]["tasks"]) == sources
    assert set(component["inputDefinitions"]["artifacts"]) == sources
    plain_parameters = plain["inputDefinitions"]["parameters"]
    for source in sources:
        description = plain_parameters.pop(f"{source}_uri")["description"]
        assert component["inputDefinitions"]["artifacts"][source]["description"] == description
    assert component["inputDefinitions"]["parameters"] == plain_parameters
    assert all(output["description"] for output in component["outputDefinitions"]["artifacts"].values())
    assert "outputDefinitions" not in plain


@pytest.mark.nightly  # daily: the steps and parameters of the component, and tests/kfp/test_container_entry.py
@pytest.mark.skipif(" " in sys.executable, reason="KFP's local engine does not quote the path of Python in a shell")
def test_a_nested_pipeline_runs_in_kfps_local_engine(tmp_path, monkeypatch, digits_model, digits_examples):
    """Run the commands of the steps as processes, because KFP runs a container component only in a container."""
    monkeypatch.setattr(SubprocessTaskHandler, "validate_not_container_component", lambda *_: None)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    Path("lite.py").write_text(LITE)
    assert main(["compile", "lite.py", "--as-component", "-o", "lite.yaml"]) == 0
    lite = components.load_component_from_file("lite.yaml")

    @dsl.pipeline(name="own")
    def own(finished: str, examples_uri: str) -> int:
        examples = dsl.importer(artifact_uri=examples_uri, artifact_class=dsl.Dataset).output
        trained = train_model(finished=finished).outputs["model"]
        converted = lite(model=trained, examples=examples, precision="float32")
        return measure_size(model=converted.outputs["lite"]).output

    kfp.local.init(kfp.local.SubprocessRunner(use_venv=False), pipeline_root=str(tmp_path / "root"))
    try:
        done = own(finished=str(digits_model), examples_uri=str(digits_examples))
    finally:
        kfp.local.config.LocalExecutionConfig.instance = None
    (file,) = (tmp_path / "root").glob("*/export-tflite/exported/*/tflite")
    assert done.output == file.stat().st_size > 1000


@pytest.mark.parametrize("name", pipelines())
def test_every_shipped_pipeline_has_the_selection_as_outputs(name):
    types = {output: value.type for output, value in load(name).outputs.items()}
    assert types == {"selected": Model, "decision": Decision, "blessing": Blessing}


@pytest.mark.parametrize("kind", ["number", "list", "name", "source"])
def test_a_pipeline_that_returns_anything_but_step_outputs_is_refused(kind):
    def bad(steps, data: Input[Files]):
        report = steps(toys.count, data=data).outputs["report"]
        return {"number": 7, "list": [report], "name": {"The report": report}, "source": {"data": data}}[kind]

    with pytest.raises(ComponentError, match="bad returns"):
        trace(bad)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["prune"], "--as-component for prune"),
        (["optimize", "--kfp-option", "root=s3://bucket/runs"], "--kfp-option root with --as-component"),
        (["optimize", "--kfp-option", "model:reuse=yes"], "--kfp-option model:reuse with --as-component"),
    ],
)
def test_options_that_a_component_cannot_have_are_refused(words, message, tmp_path, capsys):
    assert main(["compile", *words, "--as-component", "-o", str(tmp_path / "c.yaml")]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "how to fix:" in error
