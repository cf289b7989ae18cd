"""Test the second round of fine-tuning for a model that misses a goal on held-out examples.

test_quantize.py has a second round of `quantize`.
"""

from pathlib import Path

import keras
import numpy as np
import pytest

from tests.components.train_modules import DENSE
from tfopt import keras_models
from tfopt.artifacts import Examples, KerasModel
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.cluster.component import cluster
from tfopt.components.prune.component import prune
from tfopt.data.batches import read_batches
from tfopt.errors import ComponentError
from tfopt.training.fine_tuner import HELD_OUT, SecondRound, compile_like, read_splits
from tfopt.training.fine_tuning_inputs import FineTuningSettings
from tfopt.training.user_module import UserModule

STRICT, EASY = ["accuracy threshold 1.0"], ["latency threshold 5", "quality max_degradation 90%"]


@pytest.fixture(scope="module")
def module(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("module") / "module.py"
    file.write_text(DENSE)
    return file


@pytest.fixture(scope="module")
def dense_model(tmp_path_factory, digits_examples) -> Path:
    """A KerasModel folder: ``image`` [8,8,1], one dense layer, > 90 %."""
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 1), name="image")
    flow = keras.layers.Flatten()(keras.layers.Rescaling(1 / 16)(image))
    model = keras.Model(image, keras.layers.Dense(10, activation="softmax", name="digit")(flow))
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    specs = {"image": TensorSpec("float32", (None, 8, 8, 1)), "label": TensorSpec("int64", (None, 1))}
    train = next(read_batches(Examples(digits_examples).split("train"), specs, batch_size=1400))
    model.fit(train["image"], train["label"], epochs=10, verbose=0)
    folder = tmp_path_factory.mktemp("dense") / "model"
    keras_models.save(model, folder)
    return folder


@pytest.fixture(scope="module")
def pruned(tmp_path_factory, dense_model, digits_examples, module) -> KerasModel:
    """A model with 70 % zeros and a second round after one epoch."""
    options = {"sparsity": 0.7, "epochs": 1, "recover": 3, "goals": STRICT}
    target = tmp_path_factory.mktemp("second") / "pruned"
    return prune(dense_model, target, digits_examples, module, **options)["pruned"]


@pytest.fixture
def compiled(dense_model, digits_examples, module):
    """A compiled model, and its splits with held-out examples."""
    user = UserModule(module)
    model = keras_models.load(KerasModel(dense_model))
    compile_like(model, user, None)
    return model, read_splits(model, Examples(digits_examples), "label", held_out=True)


def test_every_tenth_example_is_held_out_and_no_other(compiled, dense_model, digits_examples):
    model, splits = compiled
    whole = read_splits(model, Examples(digits_examples), "label")["train"]
    images = {name: records(source) for name, source in {**splits, "whole": whole}.items() if name != "eval"}
    assert len(images[HELD_OUT]) == splits[HELD_OUT].count == 140
    assert len(images["train"]) == splits["train"].count == 1260
    assert sorted(images[HELD_OUT] + images["train"]) == sorted(images["whole"])
    assert images[HELD_OUT] == images["whole"][::10]


def test_a_model_that_misses_a_goal_has_a_second_round_in_its_model_card(pruned, dense_model, compiled):
    recovery = pruned.card.facts["fine_tuned"]["recovery"]
    assert recovery["missed"].startswith("accuracy is ")
    assert (recovery["records"], recovery["epochs"], recovery["kept"]) == (140, 3, "second")
    assert recovery["second"]["accuracy"] > recovery["first"]["accuracy"]
    model, sources = compiled
    assert recovery["baseline"]["accuracy"] == pytest.approx(accuracy(model, sources), abs=1e-6)
    tuned = keras_models.load(pruned)
    tuned.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    assert recovery["second"]["accuracy"] == pytest.approx(accuracy(tuned, sources), abs=1e-6)


def test_zeros_are_the_same_after_the_second_round(pruned):
    kernel = keras_models.load(pruned).get_layer("digit").kernel.numpy()
    assert int((kernel == 0).sum()) == round(0.7 * kernel.size)


@pytest.mark.nightly
def test_shared_weights_stay_shared_and_later_steps_use_the_first_baseline(pruned, digits_examples, module, tmp_path):
    options = {"clusters": 4, "epochs": 1, "recover": 2, "goals": STRICT}
    child = cluster(pruned, tmp_path / "c", digits_examples, module, **options)["clustered"]
    recovery = child.card.facts["fine_tuned"]["recovery"]
    assert "second" in recovery
    assert recovery["baseline"] == pruned.card.facts["fine_tuned"]["recovery"]["baseline"]
    assert len(np.unique(keras_models.load(child).get_layer("digit").kernel.numpy())) == 4


def test_a_model_that_meets_its_goals_has_no_second_round(compiled, dense_model, digits_examples):
    model, sources = compiled
    settings = FineTuningSettings(recover=5, goals=EASY)
    second = SecondRound(settings, KerasModel(dense_model), Examples(digits_examples), model, sources)
    same, history, recovery = second.run(model, lambda model: pytest.fail("a second round"))
    assert (same, history) == (model, None)
    assert not {"missed", "second", "kept"} & set(recovery)
    assert recovery["first"]["accuracy"] > 0.9


def test_a_second_round_without_gain_is_discarded(compiled, dense_model, digits_examples):
    model, sources = compiled
    second = SecondRound(
        FineTuningSettings(recover=1, goals=STRICT), KerasModel(dense_model), Examples(digits_examples), model, sources
    )
    before = model.get_weights()

    def ruin(model):
        model.set_weights([0 * weight for weight in before])
        return model, "ruined"

    better, history, facts = second.run(model, ruin)
    assert history is None
    assert facts["kept"] == "first"
    assert facts["second"]["accuracy"] < 0.2 < facts["first"]["accuracy"]
    assert all((now == then).all() for now, then in zip(better.get_weights(), before, strict=True))


def test_goals_without_a_metric_and_recover_without_a_module_are_refused(
    compiled, dense_model, digits_examples, tmp_path
):
    model, sources = compiled
    arguments = KerasModel(dense_model), Examples(digits_examples), model, sources
    for goals, received in (
        (["latency threshold 5"], "recover with the goals latency threshold 5"),
        ([], "recover with the goals none"),
    ):
        with pytest.raises(ComponentError) as refusal:
            SecondRound(FineTuningSettings(recover=1, goals=goals), *arguments)
        assert refusal.value.received == received
        assert "accuracy" in refusal.value.expected
    with pytest.raises(ComponentError, match="recover=1 without a module"):
        prune(dense_model, tmp_path / "p", recover=1)


def records(source) -> list[bytes]:
    return [image.tobytes() for images, _ in source.in_order().as_numpy_iterator() for image in images]


def accuracy(model, sources) -> float:
    return model.evaluate(sources[HELD_OUT].in_order(), return_dict=True, verbose=0)["accuracy"]
