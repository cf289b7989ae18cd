"""Test our steps inside of a pipeline that is written with Kubeflow's own SDK."""

import importlib.util
import re
from pathlib import Path

import pytest
import yaml
from kfp import dsl
from kfp.compiler import Compiler

import tfopt
from tfopt.cli.main import main
from tfopt.errors import ComponentError
from tfopt.kfp import Steps, steps


@dsl.component(base_image="python:3.11-slim")
def train_model(examples: dsl.Input[dsl.Dataset], model: dsl.Output[dsl.Model]) -> None:
    """A native component before ours."""


@dsl.component(base_image="python:3.11-slim")
def deploy(model: dsl.Input[dsl.Model], metrics: dsl.Input[dsl.Metrics]) -> None:
    """A native component after ours."""


def compiled(pipeline, folder: Path) -> dict:
    Compiler().compile(pipeline, str(folder / "pipeline.yaml"))
    return next(yaml.safe_load_all((folder / "pipeline.yaml").read_text()))


def test_steps_stand_between_native_components(tmp_path):
    ours = Steps("registry.example/tfopt-{kind}:7")

    @dsl.pipeline(name="own")
    def own(examples_uri: str, label: str = "digit") -> None:
        examples = dsl.importer(artifact_uri=examples_uri, artifact_class=dsl.Dataset).output
        trained = train_model(examples=examples).outputs["model"]
        folded = ours.fold_batch_norm(model=trained, examples=examples).outputs["folded"]
        lite = ours.export_tflite(model=folded, examples=examples, precision="int8").outputs["exported"]
        evaluated = ours.evaluate(baseline=trained, candidates=[folded, lite], examples=examples, label=label)
        deploy(model=lite, metrics=evaluated.outputs["evaluation"])

    tasks = compiled(own, tmp_path)["root"]["dag"]["tasks"]
    artifacts = tasks["evaluate"]["inputs"]["artifacts"]
    producers = {name: entry["taskOutputArtifact"]["producerTask"] for name, entry in artifacts.items()}
    assert producers == {
        "baseline": "train-model",
        "candidates_1": "fold-batch-norm",
        "candidates_2": "export-tflite",
        "examples": "importer",
    }
    assert tasks["evaluate"]["inputs"]["parameters"]["label"] == {"componentInputParameter": "label"}
    text = (tmp_path / "pipeline.yaml").read_text()
    assert "registry.example/tfopt-tf:7" in text
    assert "registry.example/tfopt-beam:7" in text


def test_the_pipeline_of_the_guide_compiles(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "own_dag.md").read_text()
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "tfopt.kfp" in block]
    (tmp_path / "own.py").write_text(block)  # KFP reads the source of a component from its file
    spec = importlib.util.spec_from_file_location("own", tmp_path / "own.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tasks = compiled(module.train_and_optimize, tmp_path)["root"]["dag"]["tasks"]
    assert {"train-model", "fold-batch-norm", "export-tflite", "evaluate", "deploy"} < set(tasks)


def test_the_guide_gives_engines_and_their_measurement_a_gpu(tmp_path):
    guide = (Path(__file__).parents[2] / "docs" / "kubeflow.md").read_text()
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) if "convert_tensorrt" in block]

    @dsl.pipeline(name="own")
    def own(model_uri: str) -> None:
        model = dsl.importer(artifact_uri=model_uri, artifact_class=dsl.Model).output
        ours = Steps(f"registry.example/tfopt-{{kind}}:{tfopt.__version__}")
        exec(block, {"steps": ours, "model": model})

    executors = compiled(own, tmp_path)["deploymentSpec"]["executors"]
    for name in ("exec-convert-tensorrt", "exec-benchmark"):
        assert executors[name]["container"]["image"] == f"registry.example/tfopt-gpu:{tfopt.__version__}"
        assert executors[name]["container"]["resources"]["accelerator"]["resourceType"] == "nvidia.com/gpu"


def test_caching_is_that_of_the_declaration(tmp_path):
    @dsl.pipeline(name="own")
    def own(model_uri: str) -> None:
        model = dsl.importer(artifact_uri=model_uri, artifact_class=dsl.Model).output
        steps.benchmark(baseline=model, candidates=[model])
        steps.fold_batch_norm(model=model)

    tasks = compiled(own, tmp_path)["root"]["dag"]["tasks"]
    assert not tasks["benchmark"].get("cachingOptions", {}).get("enableCache")
    assert tasks["fold-batch-norm"]["cachingOptions"]["enableCache"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"modell": None}, "export_tflite: modell"),
        ({}, "export_tflite: no model"),
        ({"precision": "int88"}, "precision='int88'"),
    ],
)
def test_wrong_arguments_are_refused_when_the_pipeline_is_built(arguments, message):
    def own(model_uri: str) -> None:
        model = dsl.importer(artifact_uri=model_uri, artifact_class=dsl.Model).output
        steps.export_tflite(**({"model": model} if "precision" in arguments else {}), **arguments)

    with pytest.raises(ComponentError, match=message):
        dsl.pipeline(name="own")(own)


def test_a_list_input_takes_a_list():
    def own(model_uri: str) -> None:
        model = dsl.importer(artifact_uri=model_uri, artifact_class=dsl.Model).output
        steps.benchmark(baseline=model, candidates=model)

    with pytest.raises(ComponentError, match="candidates is one artifact"):
        dsl.pipeline(name="own")(own)


def test_compile_writes_a_component_with_the_requested_number_of_candidates(tmp_path, capsys):
    assert main(["compile", "evaluate", "-o", str(tmp_path / "c.yaml"), "--count", "candidates=3"]) == 0
    definitions = yaml.safe_load((tmp_path / "c.yaml").read_text())["components"]["comp-evaluate"]["inputDefinitions"]
    assert [name for name in definitions["artifacts"] if name.startswith("candidates")] == [
        "candidates_1",
        "candidates_2",
        "candidates_3",
    ]


@pytest.mark.parametrize(("name", "gpu"), [("train", None), ("convert_tensorrt", "1")])
def test_a_component_file_has_the_resources_of_the_declaration(name, gpu, tmp_path):
    from tfopt.component import find
    from tfopt.kfp.compiler import compile_component

    compile_component(find(name), tmp_path / "c.yaml")
    (executor,) = yaml.safe_load((tmp_path / "c.yaml").read_text())["deploymentSpec"]["executors"].values()
    resources, declared = executor["container"]["resources"], find(name).resources
    assert {resources[f"resourceCpu{end}"] for end in ("Request", "Limit")} == {str(declared.cpu)}
    assert {resources[f"resourceMemory{end}"] for end in ("Request", "Limit")} == {declared.memory}
    assert resources.get("accelerator", {}).get("resourceCount") == gpu


@pytest.mark.parametrize("count", ["candidate=3", "candidates=0", "candidates=x", "examples=2"])
def test_compile_refuses_a_wrong_count(tmp_path, capsys, count):
    assert main(["compile", "evaluate", "-o", str(tmp_path / "c.yaml"), "--count", count]) == 1
    assert f"--count {count}" in capsys.readouterr().err


def test_compile_names_the_pipeline_and_describes_its_inputs(tmp_path, capsys):
    options = ["-o", str(tmp_path / "p.yaml"), "--pipeline-name", "digits_weekly"]
    assert main(["compile", "optimize", *options]) == 0
    pipeline = next(yaml.safe_load_all((tmp_path / "p.yaml").read_text()))
    assert pipeline["pipelineInfo"]["name"] == "digits-weekly"
    inputs = pipeline["root"]["inputDefinitions"]["parameters"]
    assert all(entry.get("description") for entry in inputs.values())
    assert inputs["model_uri"]["description"].startswith("A trained model: the baseline")
    assert main(["compile", "optimize", *options[:-1], "Digits weekly"]) == 1
    assert "small letters" in capsys.readouterr().err


def test_compile_refuses_counts_for_a_pipeline(tmp_path, capsys):
    assert main(["compile", "optimize", "-o", str(tmp_path / "p.yaml"), "--count", "candidates=3"]) == 1
    assert "--count for a pipeline" in capsys.readouterr().err


@dsl.component(base_image="python:3.11-slim")
def train_width(examples: dsl.Input[dsl.Dataset], width: int, model: dsl.Output[dsl.Model]) -> None:
    """A native component in a loop."""


def test_models_of_a_loop_are_candidates_next_to_others(tmp_path):
    @dsl.pipeline(name="own")
    def own(examples_uri: str, model_uri: str) -> None:
        examples = dsl.importer(artifact_uri=examples_uri, artifact_class=dsl.Dataset).output
        model = dsl.importer(artifact_uri=model_uri, artifact_class=dsl.Model).output
        with dsl.ParallelFor([16, 32, 64]) as width:
            trained = train_width(examples=examples, width=width).outputs["model"]
            folded = steps.fold_batch_norm(model=trained, examples=examples).outputs["folded"]
        candidates = [model, dsl.Collected(folded)]
        evaluated = steps.evaluate(baseline=model, candidates=candidates, examples=examples)
        measured = steps.benchmark(baseline=model, candidates=dsl.Collected(folded))
        steps.select_model(
            baseline=model,
            candidates=candidates,
            evaluation=evaluated.outputs["evaluation"],
            benchmark=measured.outputs["benchmark"],
        )

    spec = compiled(own, tmp_path)
    declared = spec["components"]["comp-evaluate"]["inputDefinitions"]["artifacts"]
    assert {name for name, entry in declared.items() if entry.get("isArtifactList")} == {"candidates_2"}
    outputs = spec["components"]["comp-evaluate"]["outputDefinitions"]["artifacts"]
    assert {"evaluation_baseline", "evaluation_candidates_1"} == {name for name in outputs if "evaluation_" in name} - {
        "evaluation_page"
    }
    tasks = spec["root"]["dag"]["tasks"]
    for step, name in (("evaluate", "candidates_2"), ("benchmark", "candidates_1"), ("select-model", "candidates_2")):
        wire = tasks[step]["inputs"]["artifacts"][name]["taskOutputArtifact"]
        assert wire["producerTask"].startswith("for-loop")


def test_an_input_for_one_artifact_refuses_the_models_of_a_loop():
    def own() -> None:
        with dsl.ParallelFor(["a", "b"]) as uri:
            model = dsl.importer(artifact_uri=uri, artifact_class=dsl.Model).output
        steps.fold_batch_norm(model=dsl.Collected(model))

    with pytest.raises(ComponentError, match="model is a list"):
        dsl.pipeline(name="own")(own)


def test_the_image_of_a_step_can_be_a_parameter_of_the_pipeline(tmp_path):
    @dsl.pipeline(name="own")
    def own(model_uri: str, image: str) -> None:
        model = dsl.importer(artifact_uri=model_uri, artifact_class=dsl.Model).output
        steps.fold_batch_norm(model=model).set_container_image(image)

    spec = compiled(own, tmp_path)
    container = spec["deploymentSpec"]["executors"]["exec-fold-batch-norm"]["container"]
    assert container["image"] == "{{$.inputs.parameters['pipelinechannel--image']}}"


def test_a_model_that_is_baseline_and_candidate_is_sent_once(tmp_path):
    @dsl.pipeline(name="own")
    def own(model_uri: str, examples_uri: str) -> None:
        model = dsl.importer(artifact_uri=model_uri, artifact_class=dsl.Model).output
        examples = dsl.importer(artifact_uri=examples_uri, artifact_class=dsl.Dataset).output
        folded = steps.fold_batch_norm(model=model).outputs["folded"]
        steps.evaluate(baseline=model, candidates=[folded, model], examples=examples, label="digit")

    spec = compiled(own, tmp_path)
    assert set(spec["root"]["dag"]["tasks"]["evaluate"]["inputs"]["artifacts"]) == {
        *("baseline", "candidates_1", "examples")
    }
    args = spec["deploymentSpec"]["executors"]["exec-evaluate"]["container"]["args"]
    assert args[2:] == ["--same-artifact", "candidates_2=baseline"]


def test_pods_of_steps_are_those_of_tfopt_compile(tmp_path):
    from tfopt.artifacts import Examples, Model
    from tfopt.component import Input
    from tfopt.dag.tracing import Steps as DagSteps
    from tfopt.dag.tracing import trace
    from tfopt.kfp.compiler import compile_pipeline

    @dsl.pipeline(name="own")
    def own(model_uri: str, examples_uri: str) -> None:
        model = dsl.importer(artifact_uri=model_uri, artifact_class=dsl.Model).output
        examples = dsl.importer(artifact_uri=examples_uri, artifact_class=dsl.Dataset).output
        steps.benchmark(baseline=model, candidates=[model], examples=examples)
        steps.convert_tensorrt(model=model, examples=examples).set_memory_limit("64Gi").set_retry(5)

    def measured(steps: DagSteps, model: Input[Model], examples: Input[Examples]) -> None:
        """Measure and convert."""
        steps.benchmark(baseline=model, candidates=[model], examples=examples)
        steps.convert_tensorrt(model=model, examples=examples)

    Compiler().compile(own, str(tmp_path / "own.yaml"))
    compile_pipeline(trace(measured), tmp_path / "ours.yaml")
    (one, own_pods), (other, pods) = (
        yaml.safe_load_all((tmp_path / name).read_text()) for name in ("own.yaml", "ours.yaml")
    )
    assert own_pods == pods
    assert pods["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-benchmark"]
    (received, expected) = (document["root"]["dag"]["tasks"] for document in (one, other))
    assert received["benchmark"]["retryPolicy"] == expected["benchmark"]["retryPolicy"]
    assert received["convert-tensorrt"]["retryPolicy"]["maxRetryCount"] == 5
    (received, expected) = (document["deploymentSpec"]["executors"] for document in (one, other))
    assert received["exec-benchmark"] == expected["exec-benchmark"]
    assert expected["exec-benchmark"]["container"]["resources"]["resourceCpuRequest"]
    received, expected = (
        received["exec-convert-tensorrt"]["container"],
        expected["exec-convert-tensorrt"]["container"],
    )
    assert received["resources"]["resourceMemoryLimit"] == "64Gi"  # the user's own
    assert received["resources"]["accelerator"] == expected["resources"]["accelerator"]
