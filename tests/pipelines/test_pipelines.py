"""What the shipped pipelines promise: failures are rows, and what is pushed was tried by its server's loader."""

import pytest

from tfopt.dag.dag import Dag, StepOutput
from tfopt.dag.tracing import load, pipelines
from tfopt.errors import ComponentError

MENU = {
    *("fold_batch_norm", "optimize_graph", "configure_runtime", "compile_xla"),
    *(f"export_tflite_{kind}" for kind in ("float32", "float16", "dynamic", "int8")),
    *(f"export_{kind}_{precision}" for kind in ("onnx", "openvino") for precision in ("float32", "int8")),
}
ENGINES = {f"convert_tensorrt_{precision}" for precision in ("fp32", "fp16", "int8")}


def compared(dag: Dag) -> set[str]:
    """The steps whose models are candidates."""
    return {wire.step for wire in dag.steps["select_model"].inputs["candidates"]}


def test_optimize_has_the_whole_menu_and_engines_only_where_they_are_asked_for():
    assert compared(load("optimize")) == MENU
    assert compared(load("optimize_gpu")) == MENU | ENGINES
    assert compared(load("retrain")) < MENU


@pytest.mark.parametrize("name", sorted({*pipelines()} - {"shrink", "tune"}))  # in a search a failure is a trial
def test_no_candidate_that_cannot_be_made_ends_the_run(name):
    dag = load(name)
    assert {step: dag.steps[step].parameters["on_failure"] for step in compared(dag)} == dict.fromkeys(
        compared(dag), "row"
    )


@pytest.mark.parametrize("name", pipelines())
def test_what_is_pushed_was_tried_in_the_same_layout_and_its_parent_too(name):
    dag = load(name)
    tried, pushed = dag.steps["validate_serving"], dag.steps["push_model"]
    assert pushed.inputs["infra_blessing"].step == "validate_serving"
    for given in ("model", "fallback", "examples"):
        assert pushed.inputs[given] == tried.inputs[given]
    for given in ("layout", "destination"):
        assert pushed.parameters[given] is tried.parameters[given]
    assert dag.steps["select_model"].parameters["layout"] is pushed.parameters["layout"]
    assert isinstance(pushed.inputs["model"], StepOutput) and pushed.inputs["model"].step == "select_model"
    assert pushed.inputs["fallback"] == dag.steps["select_model"].inputs["baseline"]


@pytest.mark.parametrize(
    ("name", "parameter"),
    [*((name, "destination") for name in pipelines()), ("retrain", "last"), ("tune", "last")],
)
def test_an_address_that_nothing_can_be_pushed_to_is_refused_before_the_first_step(name, parameter):
    dag = load(name)
    given = {source: f"s3://bucket/{source}" for source in dag.sources}
    assert dag.values({**given, parameter: "~/served"})[parameter] == "~/served"
    with pytest.raises(ComponentError, match=f"^received: {name}: {parameter}: gs://bucket/served") as refusal:
        dag.values({**given, parameter: "gs://bucket/served"})
    assert refusal.value.expected == "a folder on this machine, mounted if need be"


def test_retrain_trains_by_the_plan_and_from_the_start_that_it_is_given():
    dag = load("retrain")
    assert {name: source.optional for name, source in dag.sources.items()} == {
        **{"data": False, "module": False},
        **{"plan": True, "start": True},
    }
    wired = dag.steps["train"].inputs
    assert (wired["plan"], wired["start"]) == (dag.sources["plan"], dag.sources["start"])
