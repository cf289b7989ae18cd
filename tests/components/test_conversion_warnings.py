"""Test that conversions which change too many answers appear in the card and in the decision."""

import json
import logging

import numpy as np
import pytest

from tests.components.decisions import ONE_POINT
from tests.components.exporters import write_split
from tests.reports import DIGITS, make_models, write_reports
from tests.runtimes.formulas import saved
from tfopt.artifacts import Examples, Model
from tfopt.components.select_model.component import select_model
from tfopt.conversion.parameters import Calibration
from tfopt.conversion.verification import verify
from tfopt.runtimes import load


def parity(agreement: float | None, correlation: float, records: int = 200) -> dict:
    return {"agreement": agreement, "correlation": correlation, "records": records, "relative_error": 0.1}


def decide_with_cards(outputs: dict[str, dict], folder, warnings=(), **parameters):
    """Return ``decision.json`` for models whose cards have these parities by name of the model."""
    models = make_models(DIGITS, folder / "models")
    for row, path in zip(DIGITS, models, strict=True):
        if row.name in outputs:
            card = json.loads((path / "model_card.json").read_text())
            verified = {"run": True, "outputs": {"digit": outputs[row.name]}, "warnings": list(warnings)}
            (path / "model_card.json").write_text(json.dumps(card | {"precision": "int8", "verified": verified}))
    evaluation, benchmark = write_reports(DIGITS, models, folder, samples=False)
    outputs = select_model(
        baseline=models[0], candidates=models[1:], evaluation=evaluation, benchmark=benchmark,
        selected=folder / "selected", decision=folder / "decision", blessing=folder / "blessing",
        **{"goals": ONE_POINT} | parameters,
    )  # fmt: skip
    return outputs["decision"]


def warnings_of(decision, name: str) -> str:
    return "; ".join(next(row.get("warnings", []) for row in decision.read()["models"] if row["name"] == name))


def test_the_decision_names_a_conversion_that_changes_more_classes_than_another_one(tmp_path, caplog):
    outputs = {"tflite int8": parity(0.9, 0.999), "tflite dynamic": parity(0.995, 0.9995)}
    with caplog.at_level(logging.WARNING, "tfopt"):
        decision = decide_with_cards(outputs, tmp_path)
    text = "20 of 200 records change their class in int8; with tflite dynamic 1 of 200 do"
    assert warnings_of(decision, "tflite int8") == text and not warnings_of(decision, "tflite dynamic")
    assert caplog.messages[-1] == f"tflite int8: {text}"
    assert f"Warning: {text}" in (tmp_path / "decision/report.html").read_text()


@pytest.mark.parametrize(
    ("own", "other", "warned"),
    [
        (parity(None, 0.82), parity(None, 0.995), True),
        (parity(None, 0.992), parity(None, 0.9999), False),
        (parity(None, 0.97), parity(None, 0.98), False),
        (parity(0.98, 0.999), parity(1.0, 0.999), False),
    ],
)
def test_only_a_correlation_far_below_another_one_is_a_warning(own, other, warned, tmp_path):
    decision = decide_with_cards({"tflite int8": own, "tflite dynamic": other}, tmp_path)
    assert bool(warnings_of(decision, "tflite int8")) is warned


def test_warnings_of_the_card_reach_the_decision(tmp_path):
    decision = decide_with_cards({"tflite int8": parity(1.0, 0.85)}, tmp_path, ["correlation 0.85 with the parent"])
    assert warnings_of(decision, "tflite int8") == "correlation 0.85 with the parent"


def test_a_warned_model_is_blessed_if_it_meets_a_goal_on_quality_and_the_reason_has_the_warning(tmp_path):
    decision = decide_with_cards({"tflite int8": parity(0.8, 0.85)}, tmp_path, ["40 of 200 change their class"]).read()
    assert decision["selected"] == "tflite int8" and decision["blessed"]
    assert decision["reason"].endswith("Its conversion has a warning, but it meets the goals on quality.")


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"goals": ["size threshold 10000000"]}, "has no goal on quality on 1,000 records"),
        (
            {"goals": ["accuracy max_degradation 0.5%"], "confidence": "estimate"},
            "meets no goal on quality at the bound of its interval on 1,000 records",
        ),
    ],
)
def test_a_warned_model_is_not_selected_without_a_goal_on_quality_that_is_proven(parameters, why, tmp_path):
    cards = {"tflite int8": parity(0.8, 0.85)}
    unwarned = decide_with_cards(cards, tmp_path / "one", **parameters).read()
    assert unwarned["selected"] == "tflite int8"
    decision = decide_with_cards(cards, tmp_path / "two", ["40 of 200 change their class"], **parameters).read()
    row = next(row for row in decision["models"] if row["name"] == "tflite int8")
    assert decision["selected"] != "tflite int8" and not row["passed"] and row["summary"] == "conversion in doubt"
    assert row["reasons"][0].endswith(f"its conversion is in doubt (40 of 200 change their class), and it {why}")


def serving(noise: float):
    """Return a model of a class for each sign of the first input, with errors of some records."""
    import tensorflow as tf

    def serve(x):
        wrong = tf.cast(tf.abs(x[:, 1:]) < noise, tf.float32) * 2 - 1
        return {"y": tf.concat([x[:, :1] * -wrong, x[:, :1] * wrong], 1)}

    return serve


@pytest.mark.parametrize(("share", "words"), [(0.0, []), (0.04, []), (0.2, ["change their class", "correlation"])])
def test_answers_that_change_beyond_rounding_are_warnings(share, words, tmp_path):
    rows = np.random.default_rng(0).uniform(-1, 1, (200, 2)).astype(np.float32)
    examples = Examples(write_split(tmp_path / "examples", {"x": rows}))
    parent, child = (
        saved(tmp_path / f"model {noise}", serving(noise), x=([None, 2], "float32")) for noise in (-1, share)
    )
    with load(Model(parent)) as one, load(Model(child)) as other:
        verified = verify(one, other, examples, None, Calibration(), "int8")
    assert [word for word in words if not any(word in text for text in verified.get("warnings", []))] == []
    assert bool(verified.get("warnings")) is bool(words)
