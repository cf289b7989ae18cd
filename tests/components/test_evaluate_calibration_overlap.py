"""Test that no model is evaluated on records that it was calibrated on."""

import json
from pathlib import Path

import pytest

from tfopt.artifacts import Examples, Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.evaluate.component import evaluate
from tfopt.conversion import calibration
from tfopt.conversion.parameters import Calibration
from tfopt.errors import ComponentError
from tfopt.storage.staging import link_tree

SPECS = {"image": TensorSpec("float32", (None, 8, 8, 1))}


def conversion(count: int, split: str) -> Calibration:
    return Calibration(calibration_count=count, split=split)


@pytest.fixture
def calibrated(digits_model, digits_examples, tmp_path):
    """Return a function that copies the model and writes a model card of an exporter that calibrated on a split."""

    def make(name: str, split: str, examples: Path = digits_examples) -> Path:
        folder = tmp_path / name
        link_tree(digits_model, folder)
        _, facts = calibration.sample_inputs(Examples(examples), SPECS, conversion(50, split))
        (folder / "model_card.json").write_text(json.dumps({"name": name, "calibration": facts}))
        return folder

    return make


def test_a_model_calibrated_on_the_evaluated_split_is_a_row_with_the_reason(
    calibrated, digits_model, digits_examples, tmp_path
):
    models = [calibrated("on eval", "eval"), calibrated("on train", "train")]
    evaluate(digits_model, models, digits_examples, tmp_path / "out", replicates=100)
    _, wrong, right = rows(tmp_path / "out")
    assert "calibrated on 50 of the records of split 'eval'" in wrong["error"]
    assert not wrong["metrics"]
    assert right["error"] is None
    assert right["metrics"]["accuracy"]["value"] > 0.9


def test_records_are_identified_by_content_and_not_by_folder(calibrated, digits_model, digits_examples, tmp_path):
    """The same records in another folder and in other files."""
    link_tree(digits_examples / "Split-eval", tmp_path / "elsewhere" / "Split-eval")
    model = calibrated("moved", "eval", tmp_path / "elsewhere")
    evaluate(digits_model, [model], digits_examples, tmp_path / "out", replicates=100)
    assert "calibrated on 50" in rows(tmp_path / "out")[1]["error"]


def test_records_that_two_splits_share_add_a_note_and_no_error(calibrated, digits_model, digits_examples, tmp_path):
    """As in data with few distinct records."""
    for split in ("train", "eval"):
        link_tree(digits_examples / "Split-eval", tmp_path / "shared" / f"Split-{split}")
    model = calibrated("on train", "train", tmp_path / "shared")
    evaluate(digits_model, [model], tmp_path / "shared", tmp_path / "out", replicates=100)
    parent, child = rows(tmp_path / "out")
    assert child["error"] is None
    assert child["metrics"] == parent["metrics"]
    assert parent["notes"] == []
    assert child["notes"] == [
        "50 of the 50 records of split 'train' that it was calibrated on are in split 'eval' too, which may make its "
        "metrics optimistic"
    ]


def test_a_few_records_that_occur_twice_are_no_error(calibrated, digits_model, digits_examples, tmp_path):
    model = calibrated("on eval", "eval")
    card = json.loads((model / "model_card.json").read_text())
    _, other = calibration.sample_inputs(Examples(digits_examples), SPECS, conversion(50, "train"))
    for shared, refused in ((5, False), (6, True)):
        records = other["records"][:-shared] + card["calibration"]["records"][:shared]
        facts = {**card["calibration"], "records": records}
        (model / "model_card.json").write_text(json.dumps({**card, "calibration": facts}))
        evaluate(digits_model, [Model(model)], digits_examples, tmp_path / f"out{shared}", replicates=100)
        assert bool(rows(tmp_path / f"out{shared}")[1]["error"]) is refused


def test_a_baseline_calibrated_on_the_evaluated_split_ends_the_step(
    calibrated, digits_model, digits_examples, tmp_path
):
    with pytest.raises(ComponentError, match=r"baseline on eval: calibrated on 50"):
        evaluate(calibrated("on eval", "eval"), [digits_model], digits_examples, tmp_path / "out", replicates=100)


def rows(evaluation: Path) -> list[dict]:
    return json.loads((evaluation / "evaluation.json").read_text())["models"]
