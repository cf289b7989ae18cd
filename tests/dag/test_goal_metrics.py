"""Test that values of steps that contradict each other are refused before the first step: goals, and layouts."""

from typing import Any

import pytest

from tfopt.artifacts import Examples, Model
from tfopt.cli.main import main
from tfopt.component import Input
from tfopt.components.evaluate.metrics.task_metrics import Scoring
from tfopt.dag.tracing import Steps, load, trace
from tfopt.errors import ComponentError
from tfopt.metric_table import TASKS, task_metrics
from tfopt.trace import Inherited


@pytest.mark.parametrize("task", [task for task in TASKS if task != "other"])
@pytest.mark.parametrize("width", [1, 2, 3, 12, 200])
def test_every_metric_of_evaluate_is_known_beforehand(task, width):
    names = Scoring(task, True, width, 5).names
    assert set(names) <= set(task_metrics(task, 5)) <= set(task_metrics("auto", 5))


def selection(goals: Any, **evaluating: Any):
    """Return a pipeline that selects between two models by goals."""

    def select(steps: Steps, models: Input[Model], examples: Input[Examples]) -> None:
        """Select a model."""
        compared: Any = {"baseline": models, "candidates": [models]}
        evaluated = steps.evaluate(**compared, examples=examples, **evaluating).outputs
        measured = steps.benchmark(**compared, examples=examples).outputs
        steps.select_model(**compared, evaluation=evaluated["evaluation"], benchmark=measured["benchmark"], goals=goals)

    return select


@pytest.mark.parametrize(
    ("goal", "evaluating"),
    [
        ("accuracy threshold 0.9", {}),
        ("quality max_degradation 1%", {}),
        ("size_gzipped threshold 9", {}),
        ("error threshold 9", {}),
        ("top_3_accuracy threshold 0.9", {"top_k": 3}),
        ("macro_f1 threshold 0.9", {"task": "multi_label"}),
        ("mean_iou threshold 0.9", {"metrics": ["module:mean_iou"], "task": "other"}),
        ("accuracy[city=Oslo] threshold 0.9", {"slices": ["label", "city"]}),
        ("mean_iou[city=*] threshold 0.9", {"slices": ["city"], "metrics": ["module:mean_iou"]}),
    ],
)
def test_possible_metrics_are_accepted(goal, evaluating):
    trace(selection([goal], **evaluating))


@pytest.mark.parametrize(
    ("goal", "evaluating", "expected", "fix"),
    [
        ("acuracy threshold 0.9", {}, "accuracy", "did you mean accuracy"),
        ("top_3_accuracy threshold 0.9", {}, "top_5_accuracy", "did you mean top_5_accuracy"),
        ("accuracy threshold 0.9", {"task": "regression"}, "mean_absolute_error", "mean_squared_error"),
        ("mean_iuo threshold 0.9", {"metrics": ["module:mean_iou"]}, "mean_iou", "did you mean mean_iou"),
        ("accuracy[city=Oslo] threshold 0.9", {}, "there is none", "pass slices=city"),
        ("accuracy[citi=Oslo] threshold 0.9", {"slices": ["city"]}, "city", "did you mean city"),
        ("latency[city=Oslo] threshold 9", {"slices": ["city"]}, "a metric of an evaluation", "known: accuracy"),
    ],
)
def test_impossible_metrics_are_refused_when_the_dag_is_built(goal, evaluating, expected, fix):
    with pytest.raises(ComponentError) as refusal:
        trace(selection([goal], **evaluating))
    assert f"select_model: goals: goal {goal!r}" in refusal.value.received
    assert expected in refusal.value.expected
    assert fix in refusal.value.fix


def test_a_goal_that_depends_on_the_run_is_checked_with_its_values(tmp_path):
    def judge(steps: Steps, model: Input[Model], examples: Input[Examples], *, metrics: Inherited) -> None:
        """Select a model."""
        select = selection(["mean_iou threshold 0.9"], metrics=metrics)
        select(steps, model, examples)

    dag = trace(judge)
    sources = dict.fromkeys(dag.sources, "gs://bucket/folder")
    dag.values({**sources, "metrics": ["my.module:mean_iou"]})
    with pytest.raises(ComponentError, match="mean_iou threshold"):
        dag.values(sources)


@pytest.mark.parametrize("pipeline", ["optimize", "retrain", "tune"])
def test_shipped_pipelines_refuse_a_misspelled_goal_before_the_first_step(pipeline):
    dag = load(pipeline)
    values: dict[str, Any] = {name: "gs://bucket/folder" for name, source in dag.sources.items() if not source.optional}
    for name, goal in (("acuracy", "acuracy threshold 0.9"), ("city", "accuracy[city=*] threshold 0.9")):
        with pytest.raises(ComponentError, match=name):
            dag.values({**values, "goals": [goal]})
    dag.values({**values, "goals": [goal], "slices": ["city"]})


@pytest.mark.parametrize("command", ["compile", "plan"])
def test_commands_refuse_a_misspelled_goal(command, tmp_path, capsys):
    options = {"compile": ["--output", str(tmp_path / "x.yaml")], "plan": []}[command]
    sources = ["--set", "model=gs://b/m", "--set", "examples=gs://b/e"]
    assert main([command, "optimize", *sources, "--set", "goals=acuracy threshold 0.9", *options]) == 1
    assert "did you mean accuracy" in capsys.readouterr().err
    assert not (tmp_path / "x.yaml").exists()


def deployment(selecting: str, pushing: str | None = None):
    """Return a pipeline that selects for one layout and pushes in another, by default that of the pipeline."""

    def deploy(steps: Steps, models: Input[Model], examples: Input[Examples], *, layout: Inherited = "auto") -> None:
        """Select and push a model."""
        compared: Any = {"baseline": models, "candidates": [models]}
        evaluated = steps.evaluate(**compared, examples=examples).outputs["evaluation"]
        measured = steps.benchmark(**compared, examples=examples).outputs["benchmark"]
        selected = steps.select_model(**compared, evaluation=evaluated, benchmark=measured, layout=selecting).outputs
        chosen = {"model": selected["selected"], "blessing": selected["blessing"]}
        tested = steps.validate_serving(model=selected["selected"], layout=layout).outputs["infra_blessing"]
        steps.push_model(**chosen, infra_blessing=tested, destination="served", layout=pushing or layout)

    return deploy


def test_a_push_in_another_layout_than_that_of_the_selection_is_refused():
    with pytest.raises(ComponentError) as refusal:
        trace(deployment("auto", pushing="tf_serving"))
    assert "push_model: layout='tf_serving', but select_model" in refusal.value.received
    assert refusal.value.fix == "pass layout='tf_serving' to both"
    dag = trace(deployment("triton"))
    dag.check_values({"layout": "triton"})
    with pytest.raises(ComponentError, match="layout='plain', but select_model"):
        dag.check_values({"layout": "plain"})


def test_tfx_steps_with_different_layouts_are_refused():
    from tfx.types import Channel, standard_artifacts

    from tfopt.tfx import components

    model, examples = (Channel(type=getattr(standard_artifacts, name)) for name in ("Model", "Examples"))
    compared = {"baseline": model, "candidates": [model], "examples": examples}
    steps = components.steps
    selected = steps.select_model(
        baseline=model,
        candidates=[model],
        evaluation=steps.evaluate(**compared).outputs["evaluation"],
        benchmark=steps.benchmark(**compared).outputs["benchmark"],
    ).outputs
    chosen = {"model": selected["selected"], "blessing": selected["blessing"], "destination": "served"}
    steps.push_model(**chosen)
    with pytest.raises(ComponentError, match="layout='triton', but select_model"):
        steps.push_model(**chosen, layout="triton")


@pytest.mark.parametrize(
    ("values", "received", "fix"),
    [
        ({"objective": "cost"}, "objective=cost, and benchmark without max_p99_ms and price", "price=0.2"),
        ({"goals": ["nodes threshold 2"], "max_p99_ms": 20.0}, "goal 'nodes threshold 2', and benchmark", "rate=300"),
        ({"price": 0.2}, "price=0.2 without max_p99_ms", "max_p99_ms=20"),
    ],
)
def test_what_depends_on_a_load_is_refused_without_its_parameters(values, received, fix):
    dag = load("optimize")
    sources: dict[str, Any] = {
        name: "gs://bucket/folder" for name, source in dag.sources.items() if not source.optional
    }
    dag.values({**sources, "objective": "cost", "max_p99_ms": 20.0, "price": 0.2})
    with pytest.raises(ComponentError) as refusal:
        dag.values({**sources, **values})
    assert received in refusal.value.received and fix in refusal.value.fix
