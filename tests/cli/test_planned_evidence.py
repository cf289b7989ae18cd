"""Test what a plan states about the records that the models will be evaluated on."""

import json
from typing import Any

import pytest

from tfopt.artifacts import Examples, Files, Model
from tfopt.cli.terminal.plan_table import describe_evidence, plan_facts
from tfopt.component import Input
from tfopt.dag.planned_step import PlannedStep
from tfopt.dag.tracing import Steps, trace

NEW = PlannedStep("run", ["no earlier result"], None)


def stored(steps: Steps, models: Input[Model], examples: Input[Examples]) -> None:
    """Evaluate models on given examples."""
    steps.evaluate(baseline=models, candidates=[models, models], examples=examples)


def prepared(steps: Steps, models: Input[Model], data: Input[Files]) -> None:
    """Evaluate models on prepared examples."""
    examples = steps.prepare_examples(data=data).outputs["examples"]
    steps.evaluate(baseline=models, candidates=[models], examples=examples, split="eval", metrics=["module:mean_iou"])


@pytest.fixture
def folder(tmp_path):
    for split in ("eval", "test"):
        (tmp_path / f"Split-{split}").mkdir()
        (tmp_path / f"Split-{split}" / "data_tfrecord.gz").touch()
    manifest: dict[str, Any] = {"splits": {"eval": 300, "test": 62}, "label_counts": {"test": {"0": 31, "1": 31}}}
    (tmp_path / "examples.json").write_text(json.dumps(manifest))
    return tmp_path


def test_given_examples_state_how_many_records_are_evaluated(folder):
    (sentence,) = describe_evidence(trace(stored), {"models": "m", "examples": str(folder)}, {"evaluate": NEW})
    assert sentence == (
        "split test: 62 records cannot exclude a loss of less than 6.82 points of accuracy in any of 2 candidates, "
        "even if no record differs"
    )


def test_reused_examples_and_a_metric_of_the_user_are_known(folder):
    planned = {"prepare_examples": PlannedStep("reuse", [], 1.0, {"examples": str(folder)}), "evaluate": NEW}
    (sentence,) = describe_evidence(trace(prepared), {"models": "m", "data": "d"}, planned)
    assert sentence == (
        "split eval: 300 records cannot exclude a loss of mean iou that 1.22% of all records cause, even if no record "
        "differs"
    )


def test_before_the_examples_exist_the_plan_names_the_step_that_will_print_it(folder):
    planned = {"prepare_examples": NEW, "evaluate": NEW}
    sentences = describe_evidence(trace(prepared), {"models": "m", "data": "d"}, planned)
    assert sentences == [
        "prepare_examples will print what the records that it makes can show about the goals of quality"
    ]
    assert plan_facts(planned, sentences)["evidence"] == sentences


def test_remote_examples_and_those_of_other_programs_are_left_to_the_evaluation(folder):
    (folder / "examples.json").unlink()
    for examples in (str(folder), "gs://bucket/examples"):
        (sentence,) = describe_evidence(trace(stored), {"models": "m", "examples": examples}, {"evaluate": NEW})
        assert sentence.startswith("evaluate will print what ")
