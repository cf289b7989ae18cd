"""Test the numbering of classes from `prepare_examples` through the model card to all that use model and examples."""

import json

import numpy as np
import pytest

from tests.components.train_modules import write
from tfopt.artifacts import CARD, Model
from tfopt.components.evaluate.component import evaluate
from tfopt.components.prepare_examples.component import prepare_examples
from tfopt.components.train.component import train
from tfopt.errors import ComponentError
from tfopt.model_store.warm_start import store_model
from tfopt.storage.staging import link_tree

MODULE = """
import keras

def build_model():
    x = keras.Input((2,), name="x")
    model = keras.Model(x, keras.layers.Dense(3, "softmax", name="chances")(x))
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model
"""
SPLITS = {"splits": ["train:2", "eval:1"], "pack": "x=2"}


def prepare(folder, name, words, header="one,two", **settings):
    numbers = np.random.default_rng(len(name)).normal(size=(60, 2))
    rows = [f"{one},{two},{words[row % len(words)]}" for row, (one, two) in enumerate(numbers)]
    (folder / f"{name}.csv").write_text("\n".join([f"{header},label", *rows]) + "\n")
    return prepare_examples(folder / f"{name}.csv", folder / name, **SPLITS | settings)["examples"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the folder, the module and a model of the classes a, b, c."""
    folder = tmp_path_factory.mktemp("trained")
    examples = prepare(folder, "abc", "abc")
    module = write(folder / "m.py", MODULE)
    return folder, module, train(examples, module, folder / "trained", epochs=1)["trained"], examples


def test_training_writes_the_names_into_the_card(trained):
    assert trained[2].card.facts["learned"] == {
        "label": "label", "classes": ["a", "b", "c"], "packed": {"x": ["one", "two"]}
    }  # fmt: skip


def test_a_baseline_is_not_evaluated_on_examples_that_number_its_classes_otherwise(trained, tmp_path):
    other = prepare(tmp_path, "ac", "ac")
    with pytest.raises(ComponentError, match=r"it learned class 1 as 'b'; in the examples it is 'c'"):
        evaluate(trained[2], [trained[2]], other, tmp_path / "out", replicates=100)
    same = prepare(tmp_path, "fixed", "ac", classes=["a", "b", "c"])
    report = evaluate(trained[2], [trained[2]], same, tmp_path / "out", replicates=100)["evaluation"].read()
    assert report["classes"] == ["a", "b", "c"]


def test_a_candidate_of_another_numbering_is_a_row_with_the_reason(trained, tmp_path):
    link_tree(trained[2].path, tmp_path / "other")
    card = json.loads((tmp_path / "other" / CARD).read_text())
    card["learned"]["classes"] = ["c", "b", "a"]
    (tmp_path / "other" / CARD).unlink()
    (tmp_path / "other" / CARD).write_text(json.dumps(card | {"name": "other"}))
    outputs = evaluate(trained[2], [Model(tmp_path / "other")], trained[3], tmp_path / "out", replicates=100)
    assert outputs["evaluation"].read()["models"][1]["error"] == (
        "it learned class 0 as 'c'; in the examples it is 'a'"
    )


@pytest.mark.parametrize("role", ["start", "teacher"])
def test_training_from_a_model_of_another_numbering_is_refused(trained, tmp_path, role):
    other = prepare(tmp_path, "cab", ["b", "c", "d"])
    with pytest.raises(ComponentError, match=rf"(?s){role} .*it learned class 0 as 'a'; in the examples it is 'b'"):
        train(other, trained[1], tmp_path / "out", epochs=1, **{role: trained[2]})


def test_training_from_the_last_pushed_model_of_another_numbering_is_refused(trained, tmp_path):
    (tmp_path / "pushed").mkdir()
    store_model(tmp_path / "pushed", trained[2])
    other = prepare(tmp_path, "cab", ["b", "c", "d"])
    with pytest.raises(ComponentError, match=r"the last model .*it learned class 0 as 'a'; in the examples it is 'b'"):
        train(other, trained[1], tmp_path / "out", epochs=1, destination=str(tmp_path / "pushed"))


def test_columns_packed_in_another_order_are_refused(trained, tmp_path):
    other = prepare(tmp_path, "swapped", "abc", header="two,one")
    with pytest.raises(ComponentError, match=r"it learned value 0 of 'x' from column 'one'"):
        evaluate(trained[2], [trained[2]], other, tmp_path / "out", replicates=100)


def test_declared_classes_have_their_order_and_others_are_unusable(tmp_path):
    examples = prepare(tmp_path, "declared", "ba", classes=["b", "x", "a"])
    assert json.loads((examples.path / "examples.json").read_text())["classes"] == ["b", "x", "a"]
    with pytest.raises(ComponentError, match="label: 'z' is none of the declared classes"):
        prepare(tmp_path, "unknown", "abz", classes=["b", "x", "a"])


@pytest.mark.parametrize(
    ("words", "settings", "message"),
    [
        (["yes", "Yes", "no", "no "], {}, r"4 of 4 classes .* case or spaces: 'Yes' and 'yes'; 'no' and 'no '"),
        (["a", "b"], {"classes": ["a", "a", "b"]}, "different names"),
        (["0", "1"], {"classes": ["0", "1"]}, r'(?s)the label .label. is int64.*columns=\["label:string"\]'),
    ],
)
def test_names_that_do_not_identify_a_class_are_refused(tmp_path, words, settings, message):
    with pytest.raises(ComponentError, match=message):
        prepare(tmp_path, "bad", words, **settings)


def test_names_that_differ_in_case_are_accepted_if_declared(tmp_path):
    examples = prepare(tmp_path, "letters", "aA", classes=["a", "A"])
    assert json.loads((examples.path / "examples.json").read_text())["label_counts"]["train"].keys() == {"0", "1"}
