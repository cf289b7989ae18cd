"""Test the image, GPU and node of each step: options, refusals, and steps that run TensorRT engines."""

from typing import Any

import pytest
import yaml

from tfopt.artifacts import Examples, KerasModel, PythonModule, TensorRTModel
from tfopt.cli.main import main
from tfopt.component import Input, Output, component
from tfopt.dag.tracing import Steps, load, trace
from tfopt.errors import ComponentError
from tfopt.kfp.compiler import compile_pipeline
from tfopt.kfp.images import Images
from tfopt.kfp.placement import place_steps
from tfopt.kfp.pod_options import Options

CONVERTERS = [f"convert_tensorrt_{precision}" for precision in ("fp32", "tf32", "fp16", "bf16", "int8", "fp8")]
RUN_ENGINES = ["evaluate", "benchmark", "validate_serving", "replay", "push_model"]


def placed(pipeline: Any, *options: str, images: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    dag = load(pipeline) if isinstance(pipeline, str) else trace(pipeline)
    return place_steps(dag, Images(["r/tfopt-{kind}:1", *images]), Options(options))


def for_converters(*options: str) -> list[str]:
    return [f"{step}:{option}" for step in CONVERTERS for option in options]


def test_steps_that_run_engines_get_image_gpu_and_node_of_the_converters():
    options = for_converters("node.pool=gpu", "toleration=nvidia.com/gpu:NoSchedule", "gpu_type=nvidia.com/mig-3g.40gb")
    steps = placed("optimize_gpu", "node.pool=cpu", "memory=2Gi", *options)
    for step in [*CONVERTERS, *RUN_ENGINES]:
        assert steps[step]["image"] == "r/tfopt-gpu:1"
        assert (steps[step]["gpu"], steps[step]["gpu_type"]) == ("1", "nvidia.com/mig-3g.40gb")
        assert steps[step]["node"] == {"pool": "gpu"}
        assert steps[step]["toleration"] == ["nvidia.com/gpu:NoSchedule"]
        assert steps[step]["memory"] == "2Gi"
    for step in steps.keys() - {*CONVERTERS, *RUN_ENGINES}:
        assert (steps[step]["image"], steps[step]["gpu"], steps[step]["node"]) == ("r/tfopt-tf:1", "0", {"pool": "cpu"})


def test_the_compiled_yaml_has_the_accelerator_and_the_node_of_the_measuring_steps(tmp_path):
    options = Options(for_converters("node.pool=gpu"))
    compile_pipeline(load("optimize_gpu"), tmp_path / "p.yaml", Images(), options)
    spec, platform = yaml.safe_load_all((tmp_path / "p.yaml").read_text())
    pods = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    for step in ("evaluate", "benchmark", "validate-serving", "push-model"):
        container = spec["deploymentSpec"]["executors"][f"exec-{step}"]["container"]
        assert container["image"].startswith("tfopt-gpu:")
        assert container["resources"]["accelerator"]["resourceType"] == "nvidia.com/gpu"
        assert container["resources"]["accelerator"]["resourceCount"] == "1"
        assert pods[f"exec-{step}"]["nodeSelector"] == {"labels": {"pool": "gpu"}}
    assert "accelerator" not in spec["deploymentSpec"]["executors"]["exec-select-model"]["container"]["resources"]


def test_options_of_the_step_itself_have_priority():
    steps = placed(
        "optimize_gpu", "benchmark:gpu=2", "benchmark:node.zone=b", "push_model:gpu=0", "push_model:image=tf"
    )
    assert steps["benchmark"]["gpu"] == "2"
    assert steps["benchmark"]["node"] == {"zone": "b"}
    assert "node" not in steps["evaluate"]
    assert (steps["push_model"]["gpu"], steps["push_model"]["image"]) == ("0", "r/tfopt-tf:1")


def test_engines_of_different_machines_are_refused_unless_the_step_chooses():
    options = ["convert_tensorrt_fp32:node.pool=a", "convert_tensorrt_fp16:node.pool=b"]
    with pytest.raises(ComponentError) as refused:
        placed("optimize_gpu", *options)
    assert refused.value.received == (
        "evaluate runs engines of convert_tensorrt_fp32 (node.pool=a), "
        "convert_tensorrt_tf32 (no node), convert_tensorrt_fp16 (node.pool=b), convert_tensorrt_bf16 (no node), "
        "convert_tensorrt_int8 (no node), convert_tensorrt_fp8 (no node)"
    )
    assert "--kfp-option evaluate:node" in refused.value.fix
    steps = placed("optimize_gpu", *options, *(f"{step}:node.pool=c" for step in RUN_ENGINES))
    assert steps["evaluate"]["node"] == {"pool": "c"}


def test_without_a_gpu_for_the_converters_nothing_is_taken_from_them():
    steps = placed("optimize_gpu", *for_converters("gpu=0"))
    assert steps["evaluate"]["image"] == "r/tfopt-beam:1"
    assert {steps[step]["gpu"] for step in RUN_ENGINES} == {"0"}


def test_a_model_of_a_step_with_a_gpu_that_is_no_engine_runs_anywhere():
    def training(steps: Steps, module: Input[PythonModule], examples: Input[Examples]) -> None:
        """Train on a GPU."""
        trained = steps.train(examples=examples, module=module)
        steps.fold_batch_norm(model=trained.outputs["trained"])

    steps = placed(training, "train:gpu=1", "train:image=gpu")
    assert (steps["train"]["gpu"], steps["train"]["image"]) == ("1", "r/tfopt-gpu:1")
    assert (steps["fold_batch_norm"]["gpu"], steps["fold_batch_norm"]["image"]) == ("0", "r/tfopt-tf:1")


def test_an_engine_of_a_component_of_the_user_places_the_steps_that_run_it():
    @component(image="mine", gpu=1)
    def build(model: Input[KerasModel], engine: Output[TensorRTModel]) -> None:
        """Build."""

    def building(steps: Steps, model: Input[KerasModel]) -> None:
        """Build and measure."""
        engine = steps(build, model=model).outputs["engine"]
        steps.benchmark(baseline=model, candidates=[engine])

    steps = placed(building, images=("mine=r/mine:2",))
    assert (steps["benchmark"]["image"], steps["benchmark"]["gpu"]) == ("r/mine:2", "1")


def test_an_image_is_chosen_per_step_by_kind_or_reference():
    steps = placed("retrain", "image=beam", "train:image=gpu", "evaluate:image=registry.example:5000/ml/own")
    assert steps["train"]["image"] == "r/tfopt-gpu:1"
    assert steps["evaluate"]["image"] == "registry.example:5000/ml/own"
    assert steps["benchmark"]["image"] == "r/tfopt-beam:1"


@pytest.mark.parametrize(
    ("option", "images", "message", "fix"),
    [
        ("train:gpu=1", (), "train: gpu=1 with the image tf, which has no CUDA", "--kfp-option train:image=gpu"),
        ("gpu=1", (), "gpu=1 with the image beam, which has no CUDA", "--kfp-option prepare_examples:image=gpu"),
        ("train:image=gqu", (), "train:image=gqu", "did you mean gpu?"),
        ("evaluate:image=tf", (), "evaluate: the image tf", "--kfp-option evaluate:image=beam"),
        ("cpu=1", ("gqu=r/own:1",), "--image gqu=…", "did you mean gpu?"),
    ],
)
def test_an_image_that_does_not_fit_its_step_is_refused(option, images, message, fix):
    with pytest.raises(ComponentError, match=message) as refused:
        placed("retrain", option, images=images)
    assert fix in refused.value.fix
    assert refused.value.expected


@pytest.mark.parametrize(
    ("options", "images"),
    [
        (("train:gpu=1", "train:image=registry.example/mine:1"), ()),
        (("train:gpu=1",), ("tf=registry.example/mine:1",)),
        (("train:gpu=1",), ("registry.example/one-for-all:1",)),
        (("train:gpu=1", "train:image=mine"), ("mine=registry.example/mine:1",)),
    ],
)
def test_an_image_of_the_user_may_have_a_gpu(options, images):
    steps = placed("retrain", *options, images=images)
    assert steps["train"]["gpu"] == "1"
    assert steps["train"]["image"].startswith("registry.example/")


def test_the_command_refuses_a_gpu_without_cuda(tmp_path, capsys):
    words = ["compile", "retrain", "-o", str(tmp_path / "p.yaml"), "--kfp-option", "train:gpu=1"]
    assert main(words) == 1
    assert "add --kfp-option train:image=gpu" in capsys.readouterr().err
    assert not (tmp_path / "p.yaml").exists()
    assert main([*words, "--kfp-option", "train:image=gpu"]) == 0
