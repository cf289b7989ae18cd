"""Test the wiring of the shipped pipelines: candidates, handling of failures, validation before a push."""

import pytest

from tfopt.artifacts import InfraBlessing
from tfopt.components.evaluate.metrics.user_metrics import read_metrics
from tfopt.dag.dag import Dag, StepOutput
from tfopt.dag.tracing import load, pipelines
from tfopt.errors import ComponentError

CANDIDATES = {
    *("fold_batch_norm", "optimize_graph", "configure_runtime", "compile_xla", "quantize_graph"),
    *(f"export_tflite_{kind}" for kind in ("float32", "float16", "dynamic", "int8")),
    *(f"export_{kind}_{precision}" for kind in ("onnx", "openvino") for precision in ("float32", "int8")),
    "export_onnx_dynamic",
}
GPU_CANDIDATES = {
    *("fold_batch_norm", "optimize_graph", "compile_xla", "cast_precision_float16", "compile_xla_float16"),
    "optimize_graph_fixed_layout",
    *(f"convert_tensorrt_{precision}" for precision in ("fp32", "tf32", "fp16", "bf16", "int8", "fp8")),
}


def candidate_steps(dag: Dag) -> set[str]:
    """Return the steps whose models are candidates."""
    return {wire.step for wire in dag.steps["select_model"].inputs["candidates"]}


def test_optimize_has_the_candidates_for_cpus_and_optimize_gpu_those_for_gpus():
    assert candidate_steps(load("optimize")) == CANDIDATES
    assert candidate_steps(load("optimize_gpu")) == GPU_CANDIDATES
    assert candidate_steps(load("retrain")) < CANDIDATES


@pytest.mark.parametrize("name", ["optimize", "optimize_gpu"])
def test_each_candidate_is_made_from_its_model_with_its_precision_and_verified_on_examples(name):
    dag = load(name)
    assert dag.steps["fold_batch_norm"].inputs["model"] is dag.sources["model"]
    parents = dict.fromkeys(
        ("configure_runtime", "compile_xla", "quantize_graph", "cast_precision_float16"), "optimize_graph"
    )
    parents |= {"compile_xla_float16": "cast_precision_float16", "optimize_graph_fixed_layout": "optimize_graph"}
    for id in candidate_steps(dag) - {"fold_batch_norm"}:
        step = dag.steps[id]
        assert step.inputs["model"].step == parents.get(id, "fold_batch_norm")
        variant = "fixed_layout" if step.parameters.get("fixed_layout") else step.parameters.get("precision", "float16")
        assert id in (step.component.name, f"{step.component.name}_{variant}")
        if "examples" in step.component.inputs:
            assert step.inputs["examples"] is dag.sources["examples"]
    assert dag.steps["compile_xla"].parameters["batch_sizes"] == ["1", "32"]


@pytest.mark.parametrize("name", sorted({*pipelines()} - {"shrink", "tune"}))  # in a search a failure is a trial
def test_a_candidate_that_fails_does_not_end_the_run(name):
    dag = load(name)
    assert {step: dag.steps[step].parameters["on_failure"] for step in candidate_steps(dag)} == dict.fromkeys(
        candidate_steps(dag), "row"
    )


@pytest.mark.parametrize("name", pipelines())
def test_the_pushed_model_and_its_fallback_are_validated_in_the_same_layout(name):
    dag = load(name)
    validated, replayed, pushed = (dag.steps[step] for step in ("validate_serving", "replay", "push_model"))
    assert pushed.inputs["infra_blessing"] == StepOutput("replay", "infra_blessing", InfraBlessing)
    assert replayed.inputs["tested"] == StepOutput("validate_serving", "infra_blessing", InfraBlessing)
    assert replayed.inputs["model"] == pushed.inputs["model"]
    for name_of_input in ("model", "fallback", "examples"):
        assert pushed.inputs[name_of_input] == validated.inputs[name_of_input]
    for parameter in ("layout", "destination"):
        assert pushed.parameters[parameter] is validated.parameters[parameter] is replayed.parameters[parameter]
    assert dag.steps["select_model"].parameters["layout"] is pushed.parameters["layout"]
    assert isinstance(pushed.inputs["model"], StepOutput) and pushed.inputs["model"].step == "select_model"
    assert pushed.inputs["fallback"] == dag.steps["select_model"].inputs["baseline"]


@pytest.mark.parametrize("name", pipelines())
def test_models_are_measured_for_the_objective_of_the_selection(name):
    steps = load(name).steps
    users = [step for step in steps.values() if "objective" in step.component.parameters]
    assert {"benchmark", "select_model"} <= {step.component.name for step in users}
    assert all(step.parameters["objective"] is steps["select_model"].parameters["objective"] for step in users)


def test_the_objective_size_selects_by_size_from_the_measurements_for_latency():
    dag = load("optimize")
    values = {name: parameter.default for name, parameter in dag.parameters.items()}
    values["objective"] = dag.parameters["objective"].check("size", "optimize")
    steps = [dag.steps[name] for name in ("select_model", "benchmark")]
    assert [step.component.check(step.resolve(values))["objective"] for step in steps] == ["size", "latency"]


@pytest.mark.parametrize("name", pipelines())
def test_a_destination_is_checked_before_the_first_step(name):
    dag = load(name)
    sources = {source: f"s3://bucket/{source}" for source in dag.sources}
    for destination in ("~/served", "s3://bucket/served", "gs://bucket/served"):
        assert dag.values({**sources, "destination": destination})["destination"] == destination
    for destination in ("s4://bucket/served", " "):
        with pytest.raises(ComponentError, match=f"^received: {name}: destination: ") as refusal:
            dag.values({**sources, "destination": destination})
        assert "s3://BUCKET/FOLDER" in refusal.value.expected


def test_retrain_passes_its_plan_and_start_to_train():
    dag = load("retrain")
    assert {name: source.optional for name, source in dag.sources.items()} == {
        **{"data": False, "module": False},
        **{"plan": True, "start": True, "recording": True},
    }
    inputs = dag.steps["train"].inputs
    assert (inputs["plan"], inputs["start"]) == (dag.sources["plan"], dag.sources["start"])


@pytest.mark.parametrize("name", ["optimize", "optimize_gpu", "retrain", "shrink", "tune"])
def test_every_pipeline_evaluates_with_the_metrics_of_the_user(name):
    dag = load(name)
    for id in {"evaluate", "tune_recipe"} & set(dag.steps):
        step = dag.steps[id]
        assert step.parameters["metrics"].parameter is dag.parameters["metrics"]
        assert step.inputs["module"].name == "module"
    assert dag.parameters["metrics"].reads.parse is read_metrics, "a wrong name is refused before anything runs"


@pytest.mark.parametrize("name", ["retrain", "tune"])
def test_the_data_preparation_takes_files_columns_and_the_policy_for_missing_values(name):
    dag = load(name)
    prepared = dag.steps["prepare_examples"].parameters
    for parameter in ("files", "columns", "missing", "pack", "splits"):
        assert prepared[parameter].parameter is dag.parameters[parameter]
    splits = [text.partition(":")[0] for text in dag.parameters["splits"].default]
    assert splits == ["train", "eval", "test"]  # candidates are measured on records that no step has seen
    assert "Parquet" in dag.steps["prepare_examples"].inputs["data"].description
    with pytest.raises(ComponentError, match="write columns="):
        dag.parameters["columns"].reads.parse(["c:number"])
