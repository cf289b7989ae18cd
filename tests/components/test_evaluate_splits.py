"""Which split is judged: one that no training looked at, where there is one, and else it is told who looked."""

import json

import pytest

from tests.conftest import write_examples
from tfopt.artifacts import CARD, Examples, Model
from tfopt.artifacts.staging import link_tree
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.evaluate.component import evaluate
from tfopt.components.evaluate.splits import chosen_on_it, judged_split, split_files
from tfopt.data.batches import read_batches
from tfopt.errors import ComponentError

SPECS = {"image": TensorSpec("float32", (None, 64)), "label": TensorSpec("int64", (None, 1))}


@pytest.fixture
def with_test(digits_examples, tmp_path):
    """The digits with a third split, 40 of those of eval."""
    link_tree(digits_examples, tmp_path / "examples")
    few = next(read_batches(Examples(digits_examples).split("eval"), SPECS, batch_size=40))
    write_examples(tmp_path / "examples" / "Split-test" / "data_tfrecord-00000-of-00001.gz", few)
    return tmp_path / "examples"


@pytest.fixture
def trained(digits_model, tmp_path):
    """The model, with a card that says where it comes from."""
    link_tree(digits_model, tmp_path / "trained")
    (tmp_path / "trained" / CARD).write_text(json.dumps({"name": "trained", "component": "train"}))
    return tmp_path / "trained"


def test_the_split_that_no_training_looked_at_is_judged_where_there_is_one(trained, with_test, tmp_path):
    found = evaluate(trained, [trained], with_test, tmp_path / "out", replicates=100)["evaluation"].read()
    assert (found["split"], found["counts"]["evaluated"], found["chosen_on_it"]) == ("test", 40, [])


def test_on_the_split_that_chose_the_epochs_it_is_told_of_whom(trained, digits_model, digits_examples, tmp_path):
    found = evaluate(trained, [digits_model], digits_examples, tmp_path / "out", replicates=100)["evaluation"].read()
    assert (found["split"], found["counts"]["evaluated"]) == ("eval", 397)
    assert found["chosen_on_it"] == ["trained"]  # of the other it is not known that it was trained here


def test_the_split_that_is_named_is_taken(with_test):
    examples = Examples(with_test)
    assert [judged_split(examples, name) for name in ("auto", "eval", "train")] == ["test", "eval", "train"]
    (with_test / "Split-test" / "data_tfrecord-00000-of-00001.gz").unlink()
    assert judged_split(Examples(with_test), "auto") == "eval"
    with pytest.raises(ComponentError, match="one of its splits: eval, test, train"):
        split_files(Examples(with_test), "validation")


def test_steps_that_learn_are_told_from_those_that_do_not(tmp_path):
    models = [card(tmp_path / "a", "export_tflite", "prune"), card(tmp_path / "b", "export_tflite", None)]
    assert chosen_on_it(models, ["pruned", "given"], "eval") == ["pruned"]
    assert chosen_on_it(models, ["pruned", "given"], "test") == []


def card(folder, component, before) -> Model:
    folder.mkdir()
    lineage = [{"name": "before", "digest": "0", "component": before, "parameters": {}}]
    (folder / CARD).write_text(json.dumps({"name": "m", "component": component, "lineage": lineage}))
    return Model(folder)
