"""Test that `evaluate` counts evaluated records which a model has learned from in other examples."""

import json

import numpy as np
import pytest

from tests.components.train_modules import write
from tests.conftest import write_examples
from tfopt.artifacts import CARD, Examples, KerasModel
from tfopt.artifacts.model_card import ModelCard, TrainedOn
from tfopt.components.evaluate.component import evaluate
from tfopt.components.optimize_graph.component import optimize_graph
from tfopt.components.prune.component import prune
from tfopt.components.train.component import train
from tfopt.data import record_hashes
from tfopt.data.record_hashes import read_trained_on, trained_on_facts
from tfopt.errors import ComponentError
from tfopt.model_store.warm_start import store_model
from tfopt.storage.staging import link_tree

MODULE = """
import keras

def build_model():
    x = keras.Input((2,), name="x")
    model = keras.Model(x, keras.layers.Dense(2, "softmax", name="chances")(x))
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""
X = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
LABELS = (X[:, 0] > 0).astype(np.int64)


def examples(folder, **rows):
    for split, own in rows.items():
        columns = {"x": X[own], "label": LABELS[own]}
        write_examples(folder / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz", columns)
    return Examples(folder)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Return the module, and a model that learned from the rows 0 to 80."""
    folder = tmp_path_factory.mktemp("learned")
    module = write(folder / "m.py", MODULE)
    data = examples(folder / "first", train=slice(80), eval=slice(80, 100))
    return module, train(data, module, folder / "trained", epochs=1)["trained"]


def notes(models, data, folder):
    return evaluate(models[0], list(models[1:]), data, folder, replicates=100)["evaluation"].read().get("notes", [])


def test_records_that_a_model_learned_in_other_examples_are_counted(learned, tmp_path):
    (note,) = notes([learned[1], learned[1]], examples(tmp_path / "other", test=slice(70, 110)), tmp_path / "out")
    assert note.startswith("10 of 40 evaluated records have the features of records that every model learned from in")


def test_records_of_the_training_split_of_the_same_examples_are_counted_once(learned, tmp_path):
    data = examples(tmp_path / "other", train=slice(78), test=slice(70, 110))
    same, other = notes([learned[1], learned[1]], data, tmp_path / "out")
    assert same.startswith("8 of 40 evaluated records are in split 'train' too")
    assert other.startswith("2 of 40 evaluated records have the features of")


def test_new_records_and_models_without_a_sample_add_no_note(learned, tmp_path):
    data = examples(tmp_path / "new", test=slice(100, 140))
    assert notes([learned[1], learned[1]], data, tmp_path / "out") == []
    link_tree(learned[1].path, tmp_path / "old")
    card = json.loads((tmp_path / "old" / CARD).read_text())
    del card["trained_on"]
    (tmp_path / "old" / CARD).unlink()
    (tmp_path / "old" / CARD).write_text(json.dumps(card | {"name": "old"}))
    data = examples(tmp_path / "seen", test=slice(70, 110))
    (note,) = notes([KerasModel(tmp_path / "old"), learned[1]], data, tmp_path / "second out")
    assert "of records that trained learned from" in note


def test_models_made_from_a_model_have_its_records_and_those_of_their_fine_tuning(learned, tmp_path):
    module, model = learned
    optimized = optimize_graph(model, tmp_path / "optimized")["optimized"]
    second = examples(tmp_path / "second", train=slice(100, 140), eval=slice(140, 160))
    pruned = prune(model, tmp_path / "pruned", second, module, epochs=1, sparsity=0.5)["pruned"]
    unchanged = prune(model, tmp_path / "without", second, sparsity=0.5)["pruned"]
    data = examples(tmp_path / "data", test=slice(70, 110))
    first, more = notes([model, optimized, pruned, unchanged], data, tmp_path / "out")
    assert first.startswith("10 of 40") and "that trained, optimized, pruned 50% (2) learned from" in first
    assert more.startswith("20 of 40") and "that pruned 50% learned from" in more


@pytest.mark.parametrize("role", ["start", "teacher", pytest.param("destination", marks=pytest.mark.nightly)])
def test_a_training_with_another_model_learns_from_its_records(role, learned, tmp_path):
    module, model = learned
    second = examples(tmp_path / "second", train=slice(100, 140), eval=slice(140, 160))
    if role == "destination":
        (tmp_path / "pushed").mkdir()
        store_model(tmp_path / "pushed", model)
    other = str(tmp_path / "pushed") if role == "destination" else model
    trained = train(second, module, tmp_path / "trained", epochs=1, **{role: other})["trained"]
    assert "trained_on" not in trained.metadata
    data = examples(tmp_path / "data", test=slice(70, 110))
    (note,) = notes([trained, trained], data, tmp_path / "out")
    assert note.startswith("20 of 40")


def test_many_records_are_a_sample_of_the_card(monkeypatch, tmp_path):
    monkeypatch.setattr(record_hashes, "MOST_LEARNED", 30)
    data = examples(tmp_path, train=slice(200))
    facts = trained_on_facts(data.split("train"), "label", [])
    sample = read_trained_on(ModelCard(trained_on=TrainedOn(**facts)), "label")
    assert facts["level"] == sample.level >= 3
    assert 200 / 2**sample.level / 2 < len(sample.features) <= 30
    assert read_trained_on(ModelCard(trained_on=TrainedOn(**facts)), "other") is None


def test_a_card_with_damaged_hashes_is_refused(learned, tmp_path):
    link_tree(learned[1].path, tmp_path / "damaged")
    card = json.loads((tmp_path / "damaged" / CARD).read_text())
    card["trained_on"]["features"] = card["trained_on"]["features"][:-4]
    (tmp_path / "damaged" / CARD).unlink()
    (tmp_path / "damaged" / CARD).write_text(json.dumps(card))
    with pytest.raises(ComponentError, match=r"trained_on\.features") as error:
        notes(
            [learned[1], KerasModel(tmp_path / "damaged")],
            examples(tmp_path / "data", test=slice(40)),
            tmp_path / "out",
        )
    assert "restore the card" in error.value.fix
