"""A model that misses a goal on examples it does not learn gets one more round, and the better of the two is kept."""

from pathlib import Path

import numpy as np
import pytest

from tests.components.test_cluster import MODULE
from tfopt import keras_models
from tfopt.artifacts import Examples, KerasModel
from tfopt.components.cluster.component import cluster
from tfopt.components.prune.component import prune
from tfopt.components.quantize.component import quantize
from tfopt.errors import ComponentError
from tfopt.training.compile_like_module import HELD_OUT, compile_like, read_splits
from tfopt.training.fine_tuning_inputs import FineTuningSettings
from tfopt.training.second_round import SecondRound
from tfopt.training.user_module import UserModule

STRICT, EASY = ["accuracy threshold 1.0"], ["latency threshold 5", "quality max_degradation 90%"]


@pytest.fixture(scope="module")
def module(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("module") / "module.py"
    file.write_text(MODULE)
    return file


@pytest.fixture(scope="module")
def pruned(tmp_path_factory, digits_model, digits_examples, module) -> KerasModel:
    """Seven of ten weights gone after an epoch, which asks for more of them."""
    given = {"sparsity": 0.7, "epochs": 1, "recover": 3, "goals": STRICT}
    target = tmp_path_factory.mktemp("second") / "pruned"
    return prune(digits_model, target, digits_examples, module, **given)["pruned"]


@pytest.fixture
def desk(digits_model, digits_examples, module):
    """What a component has in hand: a compiled model, and its sources with some examples held out."""
    user = UserModule(module)
    model = keras_models.load(KerasModel(digits_model))
    compile_like(model, user, None)
    return model, read_splits(model, Examples(digits_examples), "label", held_out=True)


def test_every_tenth_example_is_held_out_and_no_other(desk, digits_model, digits_examples):
    model, parts = desk
    whole = read_splits(model, Examples(digits_examples), "label")["train"]
    images = {name: records(source) for name, source in {**parts, "whole": whole}.items() if name != "eval"}
    assert len(images[HELD_OUT]) == parts[HELD_OUT].count == 140
    assert len(images["train"]) == parts["train"].count == 1260
    assert sorted(images[HELD_OUT] + images["train"]) == sorted(images["whole"])
    assert images[HELD_OUT] == images["whole"][::10]


def test_a_model_that_misses_a_goal_is_tuned_again_and_told_so(pruned, digits_model, desk):
    found = pruned.card.facts["fine_tuned"]["recovery"]
    assert found["missed"].startswith("accuracy is ")
    assert (found["records"], found["epochs"], found["kept"]) == (140, 3, "second")
    assert found["second"]["accuracy"] > found["first"]["accuracy"]
    model, sources = desk
    assert found["baseline"]["accuracy"] == pytest.approx(accuracy(model, sources), abs=1e-6)
    tuned = keras_models.load(pruned)
    tuned.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    assert found["second"]["accuracy"] == pytest.approx(accuracy(tuned, sources), abs=1e-6)


def test_zeros_are_the_same_after_the_second_round(pruned):
    kernel = keras_models.load(pruned).get_layer("digit").kernel.numpy()
    assert int((kernel == 0).sum()) == round(0.7 * kernel.size)


def test_shared_weights_stay_shared_and_the_first_baseline_counts_for_all_that_follow(
    pruned, digits_examples, module, tmp_path
):
    given = {"clusters": 4, "epochs": 1, "recover": 2, "goals": STRICT}
    made = cluster(pruned, tmp_path / "c", digits_examples, module, **given)["clustered"]
    found = made.card.facts["fine_tuned"]["recovery"]
    assert "second" in found
    assert found["baseline"] == pruned.card.facts["fine_tuned"]["recovery"]["baseline"]
    assert len(np.unique(keras_models.load(made).get_layer("digit").kernel.numpy())) == 4


def test_a_quantized_model_gets_its_second_round(digits_model, digits_examples, module, tmp_path):
    given = {"epochs": 1, "recover": 1, "goals": STRICT}
    made = quantize(digits_model, digits_examples, module, tmp_path / "q", **given)["quantized"]
    assert made.card.facts["fine_tuned"]["recovery"]["epochs"] == 1


def test_a_model_that_meets_its_goals_is_left_alone(digits_model, digits_examples, module, tmp_path):
    made = cluster(digits_model, tmp_path / "c", digits_examples, module, epochs=1, recover=5, goals=EASY)["clustered"]
    found = made.card.facts["fine_tuned"]["recovery"]
    assert not {"missed", "second", "kept"} & set(found)
    assert found["first"]["accuracy"] > 0.9
    assert not list(made.path.rglob("second_round"))


def test_a_second_round_that_gains_nothing_is_dropped(desk, digits_model, digits_examples):
    model, sources = desk
    second = SecondRound(
        FineTuningSettings(recover=1, goals=STRICT), KerasModel(digits_model), Examples(digits_examples), model, sources
    )
    before = model.get_weights()

    def ruin(model):
        model.set_weights([0 * weight for weight in before])
        return model, "ruined"

    kept, said, facts = second.run(model, ruin)
    assert said is None
    assert facts["kept"] == "first"
    assert facts["second"]["accuracy"] < 0.2 < facts["first"]["accuracy"]
    assert all((now == then).all() for now, then in zip(kept.get_weights(), before, strict=True))


def test_without_being_asked_nothing_is_held_out_or_measured(digits_model, digits_examples, module, tmp_path):
    made = cluster(digits_model, tmp_path / "c", digits_examples, module, epochs=1)["clustered"]
    assert "recovery" not in made.card.facts["fine_tuned"]


def test_what_cannot_be_judged_is_refused(desk, digits_model, digits_examples, tmp_path):
    model, sources = desk
    given = KerasModel(digits_model), Examples(digits_examples), model, sources
    for goals, received in (
        (["latency threshold 5"], "recover with the goals latency threshold 5"),
        ([], "recover with the goals none"),
    ):
        with pytest.raises(ComponentError) as refusal:
            SecondRound(FineTuningSettings(recover=1, goals=goals), *given)
        assert refusal.value.received == received
        assert "accuracy" in refusal.value.expected
    with pytest.raises(ComponentError, match="recover=1 without a module"):
        prune(digits_model, tmp_path / "p", recover=1)


def records(source) -> list[bytes]:
    return [image.tobytes() for images, _ in source.in_order().as_numpy_iterator() for image in images]


def accuracy(model, sources) -> float:
    return model.evaluate(sources[HELD_OUT].in_order(), return_dict=True, verbose=0)["accuracy"]
