"""Test what the model card records of a call."""

from pathlib import Path

from tfopt.artifacts import Files, Model, TFLiteModel
from tfopt.component import find
from tfopt.execution.card_writer import write_step_card


def model(folder: Path) -> Model:
    (folder / "Format-Serving").mkdir(parents=True)
    (folder / "Format-Serving" / "tflite").write_bytes(b"flatbuffer")
    return TFLiteModel(folder)


def test_a_card_names_the_inputs_that_the_component_got(tmp_path):
    parent, child, grandchild = (model(tmp_path / name) for name in ("parent", "child", "grandchild"))
    (tmp_path / "module.py").write_text("")
    inputs = {"model": parent, "examples": None, "module": Files(tmp_path / "module.py"), "candidates": []}
    write_step_card(find("prune"), child, inputs, {})
    assert child.card.inputs == child.card.step.inputs == ["model", "module"]
    write_step_card(find("export_tflite"), grandchild, {"model": child, "examples": None}, {})
    assert grandchild.card.inputs == ["model"]
    assert [step.inputs for step in grandchild.card.lineage][-1] == ["model", "module"]


def test_a_model_that_is_larger_than_its_parent_is_never_made_in_silence(tmp_path, caplog):
    parent, smaller, larger = (model(tmp_path / name) for name in ("parent", "smaller", "larger"))
    (smaller.path / "Format-Serving" / "tflite").write_bytes(bytes(9))
    (larger.path / "Format-Serving" / "tflite").write_bytes(bytes(12))
    write_step_card(find("export_tflite"), smaller, {"model": parent}, {})
    assert not caplog.messages
    write_step_card(find("export_tflite"), larger, {"model": parent}, {})
    assert caplog.messages == ["export_tflite: 12 B, 20% larger than its parent (10 B)"]


def test_a_card_without_names_of_inputs_is_read(tmp_path):
    old = model(tmp_path / "old")
    (old.path / "model_card.json").write_text('{"name": "old", "component": "prune"}')
    assert old.card.inputs is None
