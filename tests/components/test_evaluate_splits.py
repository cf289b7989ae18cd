"""Test the choice of the evaluated split: one that no training used, else the models that used it are reported."""

import json

import pytest

from tests.conftest import write_examples
from tfopt.artifacts import CARD, Examples, Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.evaluate.component import evaluate
from tfopt.components.evaluate.examples.record_checks import models_tuned_on
from tfopt.components.evaluate.examples.records import choose_split, split_files
from tfopt.data.batches import read_batches
from tfopt.errors import ComponentError
from tfopt.storage.staging import link_tree

SPECS = {"image": TensorSpec("float32", (None, 64)), "label": TensorSpec("int64", (None, 1))}


@pytest.fixture
def with_test(digits_examples, tmp_path):
    """The digits with a third split, 40 records of eval."""
    link_tree(digits_examples, tmp_path / "examples")
    few = next(read_batches(Examples(digits_examples).split("eval"), SPECS, batch_size=40))
    write_examples(tmp_path / "examples" / "Split-test" / "data_tfrecord-00000-of-00001.gz", few)
    return tmp_path / "examples"


@pytest.fixture
def trained(digits_model, tmp_path):
    """The model, with a model card that names the component."""
    link_tree(digits_model, tmp_path / "trained")
    (tmp_path / "trained" / CARD).write_text(json.dumps({"name": "trained", "component": "train"}))
    return tmp_path / "trained"


def test_auto_evaluates_on_the_test_split_if_there_is_one(trained, with_test, tmp_path):
    report = evaluate(trained, [trained], with_test, tmp_path / "out", replicates=100)["evaluation"].read()
    assert (report["split"], report["counts"]["evaluated"], report["chosen_on_it"]) == ("test", 40, [])


def test_models_whose_epoch_was_chosen_on_the_split_are_reported(trained, digits_model, digits_examples, tmp_path):
    report = evaluate(trained, [digits_model], digits_examples, tmp_path / "out", replicates=100)["evaluation"].read()
    assert (report["split"], report["counts"]["evaluated"]) == ("eval", 397)
    assert report["chosen_on_it"] == ["trained"]  # the other model has no model card


def test_a_requested_split_is_used(with_test):
    examples = Examples(with_test)
    assert [choose_split(examples, name) for name in ("auto", "eval", "train")] == ["test", "eval", "train"]
    (with_test / "Split-test" / "data_tfrecord-00000-of-00001.gz").unlink()
    assert choose_split(Examples(with_test), "auto") == "eval"
    with pytest.raises(ComponentError, match="one of its splits: eval, test, train"):
        split_files(Examples(with_test), "validation")


def test_models_tuned_on_lists_models_with_a_training_step(tmp_path):
    models = [card(tmp_path / "a", "export_tflite", "prune"), card(tmp_path / "b", "export_tflite", None)]
    assert models_tuned_on(models, ["pruned", "plain"], "eval") == ["pruned"]
    assert models_tuned_on(models, ["pruned", "plain"], "test") == []


def card(folder, component, before) -> Model:
    folder.mkdir()
    lineage = [{"name": "before", "digest": "0", "component": before, "parameters": {}}]
    (folder / CARD).write_text(json.dumps({"name": "m", "component": component, "lineage": lineage}))
    return Model(folder)
