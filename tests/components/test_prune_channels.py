import importlib

import numpy as np
import pytest

from tests.components.channel_models import randomize_weights
from tests.components.train_modules import DIGITS, write
from tfopt import keras_models
from tfopt.artifacts import KerasModel
from tfopt.components.prune.channels.cost import count_cost, relative_latency
from tfopt.components.prune.channels.groups import ChannelGroup, find_groups, follow_channels
from tfopt.components.prune.channels.importance import label_free_losses, score_bundles
from tfopt.components.prune.channels.selection import remove_channels, select_remaining
from tfopt.components.prune.component import prune
from tfopt.components.prune.parameters import PruningSettings
from tfopt.components.train.component import train
from tfopt.errors import ComponentError

BOTH = pytest.mark.parametrize("library", ["keras", "tf_keras"])


def residual(library="keras", **conv):
    """Build two convolutions in a residual sum, a batch norm, a depthwise convolution, Flatten, Dense; 4x4 images."""
    keras = importlib.import_module(library)
    layers = keras.layers
    image = layers.Input((4, 4, 3), name="image")
    stem = layers.Conv2D(16, 3, padding="same", name="stem", **conv)(image)
    inner = layers.Conv2D(24, 1, activation="relu", name="inner")(layers.BatchNormalization(name="norm")(stem))
    flow = layers.Add()([stem, layers.Conv2D(16, 1, name="outer")(inner)])
    flow = layers.DepthwiseConv2D(3, strides=2, padding="same", name="depthwise")(flow)
    answer = layers.Dense(5, name="answer")(layers.Flatten()(flow))
    model = keras.Model(image, answer, name="residual")
    randomize_weights(model, np.random.default_rng(0))
    return model


def group(model, maker):
    return next(group for group in find_groups(follow_channels(model)) if maker in group.makers)


def facts(removal, member):
    return next(group for group in removal.report["groups"] if member in group["members"])


@BOTH
def test_a_group_has_all_layers_that_must_have_the_same_channels(library):
    first, second, last = find_groups(follow_channels(residual(library)))
    assert first.makers == ("stem", "outer")
    assert first.members == ("stem", "norm", "outer", "depthwise")
    assert len(first.bundles) == 16
    assert first.frozen is None
    assert (second.members, len(second.bundles), second.frozen) == (("inner",), 24, None)
    assert last.members == ("answer",)
    assert last.frozen == "they are an output of the model"


@BOTH
def test_costs_match_a_calculation_by_hand(library):
    model = residual(library)
    graph = follow_channels(model)
    whole = count_cost(model, graph, np.ones(len(graph.roots()), bool))
    by_hand = 3 * 9 * 16 * 16 + 16 * 24 * 16 + 24 * 16 * 16 + 9 * 16 * 4 + 64 * 5  # kernel sizes x positions
    assert whole.flops == 2 * by_hand
    assert whole.parameters == (3 * 9 * 16 + 16) + 4 * 16 + (16 * 24 + 24) + (24 * 16 + 16) + (9 * 16 + 16) + (
        64 * 5 + 5
    )
    removal = remove_channels(model, PruningSettings(0.5, scope="group", multiple=1))
    before, after = removal.report["flops"]["before"], removal.report["flops"]["after"]
    assert before == whole.flops
    a, b = facts(removal, "stem")["after"], facts(removal, "inner")["after"]
    assert after == 2 * (27 * a * 16 + a * b * 16 + b * a * 16 + 9 * a * 4 + 4 * a * 5)
    assert after <= before / 2
    assert removal.model.count_params() == removal.report["parameters"]["after"]


@BOTH
def test_the_least_important_channels_are_removed_and_the_others_keep_their_weights(library):
    model = residual(library)
    kernel, bias = model.get_layer("inner").get_weights()
    kernel[..., 3:11] *= 0.01
    model.get_layer("inner").set_weights([kernel, bias])
    removal = remove_channels(model, PruningSettings(0.1, layers=("inner",)))
    left = np.delete(np.arange(24), np.arange(3, 11))
    assert facts(removal, "inner")["after"] == 16
    np.testing.assert_array_equal(removal.model.get_layer("inner").get_weights()[0], kernel[..., left])
    outer = model.get_layer("outer").get_weights()[0]
    np.testing.assert_array_equal(removal.model.get_layer("outer").get_weights()[0], outer[:, :, left])
    stays = "none of the layers that make it is one of the selected layers"
    assert facts(removal, "stem") == {
        "members": ["stem", "norm", "outer", "depthwise"], "before": 16, "after": 16, "frozen": stays,
    }  # fmt: skip
    assert model.get_layer("inner").filters == 24  # the parent did not change


def test_counts_are_multiples_and_outputs_match_the_parent_with_zeroed_channels():
    model = residual()
    removal = remove_channels(model, PruningSettings(0.4, multiple=8))
    assert all(group["after"] % 8 == 0 for group in removal.report["groups"] if "frozen" not in group)
    records = np.random.default_rng(1).normal(size=(4, 4, 4, 3)).astype("float32")
    np.testing.assert_allclose(removal.model(records), removal.parent(records), rtol=1e-5, atol=1e-5)
    assert np.abs(removal.model(records) - model(records)).max() > 0.1


def test_l1_and_l2_rank_by_norms_and_batch_norm_by_its_scale():
    model = residual()
    graph, roots = follow_channels(model), follow_channels(model).roots()
    inner, stem = group(model, "inner").bundles, group(model, "stem").bundles
    kernel = model.get_layer("inner").get_weights()[0].reshape(16, 24)
    for kind, order in (("l1", 1), ("l2", 2)):
        norms = np.linalg.norm(kernel, order, axis=0)
        np.testing.assert_allclose(score_bundles(kind, graph)[inner], norms / norms.mean(), rtol=1e-5)
    scores = score_bundles("batch_norm", graph)
    np.testing.assert_allclose(scores[stem], np.abs(model.get_layer("norm").get_weights()[0]), rtol=1e-6)
    assert np.isnan(scores[inner]).all()
    assert len(scores) == len(roots)
    removal = remove_channels(model, PruningSettings(0.1, importance="batch_norm"))
    assert facts(removal, "inner")["frozen"] == "it has no importance by batch_norm"


@BOTH
def test_taylor_scores_are_gradient_times_activation_of_each_example(library):
    import tensorflow as tf

    model, keras = residual(library), importlib.import_module(library)
    records = np.random.default_rng(2).normal(size=(5, 4, 4, 3)).astype("float32")
    scores = score_bundles("taylor", follow_channels(model), label_free_losses(model, {"image": records}))
    linear = keras.Model(model.input, model.get_layer("norm").output)  # inner's input
    kernel, bias = model.get_layer("inner").get_weights()
    outer, outer_bias = model.get_layer("outer").get_weights()
    expected = np.zeros(24)
    for record in records:
        before = linear(record[None])
        stem = keras.Model(model.input, model.get_layer("stem").output)(record[None])
        with tf.GradientTape() as tape:
            made = tf.nn.conv2d(before, kernel, 1, "SAME") + bias
            tape.watch(made)
            flow = stem + tf.nn.conv2d(tf.nn.relu(made), outer, 1, "SAME") + outer_bias
            answer = model.get_layer("answer")(tf.reshape(model.get_layer("depthwise")(flow), (1, -1)))
            loss = tf.reduce_sum(answer**2) / 2
        expected += np.abs(np.sum(tape.gradient(loss, made) * made, axis=(0, 1, 2))) / len(records)
    np.testing.assert_allclose(scores[group(model, "inner").bundles], expected, rtol=1e-4)


def test_taylor_changes_in_two_layers_of_a_bundle_do_not_cancel():
    import keras

    image = keras.Input((2, 2, 3), name="image")
    first, second = (keras.layers.Conv2D(4, 1, name=name) for name in ("first", "second"))
    flow = keras.layers.Flatten()(keras.layers.Add()([first(image), second(image)]))
    model = keras.Model(image, keras.layers.Dense(1, bias_initializer="ones")(flow))
    second.set_weights([-weights for weights in first.get_weights()])
    records = np.random.default_rng(0).normal(size=(3, 2, 2, 3)).astype("float32")
    scores = score_bundles("taylor", follow_channels(model), label_free_losses(model, {"image": records}))
    assert (scores[group(model, "first").bundles] > 1e-3).all()


@pytest.mark.nightly  # daily: the search by FLOPs
def test_latency_is_measured_and_searched():
    model = residual()
    tried = []
    whole = cost_of(model)

    def timing(child):
        tried.append(child)
        return cost_of(child) / whole

    removal = remove_channels(model, PruningSettings(0.5, measure="latency", multiple=1), latency=timing)
    assert cost_of(removal.model) <= whole / 2
    assert removal.report["ratio"] <= 0.5
    assert 3 <= len(tried) <= 10
    assert 0.2 < relative_latency(model)(model) < 5  # the same model, on any machine


def cost_of(model):
    graph = follow_channels(model)
    return count_cost(model, graph, np.ones(len(graph.roots()), bool)).flops


FROZEN = {
    "softmax": "may mix",
    "layer_norm": "normalizes over all of its channels",
    "grouped": "in 2 groups",
    "attention": "layers of class GroupedQueryAttention are not followed",
    "lambda": "layers of class Lambda are not followed",
    "constants": "a constant for each channel",
    "custom activation": "may mix",
    "other axis": "its channel axis is",
    "input": "an input of the model",
}


@pytest.mark.parametrize("kind", FROZEN)
def test_unsupported_layers_freeze_their_channels_with_a_reason(kind):
    import keras
    from keras import layers

    image = layers.Input((4, 16), name="image")
    made = layers.Conv1D(16, 1, name="made", activation=_twisted if kind == "custom activation" else None)(image)
    flow = {
        "softmax": lambda: layers.Activation("softmax")(made),
        "layer_norm": lambda: layers.LayerNormalization()(made),
        "grouped": lambda: layers.Conv1D(16, 1, groups=2)(made),
        "attention": lambda: layers.GroupQueryAttention(4, 2, 1)(made, made),
        "lambda": lambda: layers.Lambda(_twisted)(made),
        "constants": lambda: made * np.arange(16, dtype="float32"),
        "custom activation": lambda: made,
        "other axis": lambda: layers.BatchNormalization(axis=1)(made),
        "input": lambda: made + image,
    }[kind]()
    rest = layers.Conv1D(16, 1, name="rest")(flow)
    model = keras.Model(image, layers.Conv1D(2, 1, name="answer")(rest))
    assert FROZEN[kind] in group(model, "made").frozen
    assert group(model, "rest").frozen is None
    removal = remove_channels(model, PruningSettings(0.1, multiple=4))
    records = np.random.default_rng(0).normal(size=(2, 4, 16)).astype("float32")
    np.testing.assert_allclose(removal.model(records), removal.parent(records), rtol=1e-5, atol=1e-6)


def _twisted(tensor):
    return tensor[..., ::-1]


def test_channels_are_followed_through_a_reshape_into_an_image():
    import keras
    from keras import layers

    noise = layers.Input((6,), name="noise")
    flow = layers.Reshape((3, 3, 8))(layers.Dense(72, name="made")(noise))
    model = keras.Model(noise, layers.Conv2DTranspose(1, 3, name="picture")(flow))
    assert len(group(model, "made").bundles) == 8  # nine units of the dense layer each
    removal = remove_channels(model, PruningSettings(0.5, multiple=4))
    assert removal.model.get_layer("made").units == 36
    assert removal.model.output_shape == model.output_shape


def test_one_branch_of_a_concatenation_loses_channels():
    import keras
    from keras import layers

    image = layers.Input((4, 3), name="image")
    left, right = (layers.Conv1D(16, 1, name=name)(image) for name in ("left", "right"))
    wide = layers.BatchNormalization(name="norm")(layers.Concatenate()([left, right]))
    model = keras.Model(image, layers.Dense(1, name="answer")(wide))
    randomize_weights(model, np.random.default_rng(0))
    removal = remove_channels(model, PruningSettings(0.2, layers=("right",)))
    assert (facts(removal, "left")["after"], facts(removal, "right")["after"]) == (16, 8)
    assert removal.model.get_layer("norm").gamma.shape == (24,)
    np.testing.assert_array_equal(removal.model.get_layer("norm").gamma[:16], model.get_layer("norm").gamma[:16])


def test_impossible_removals_are_refused():
    import keras
    from keras import layers

    class Own(keras.Model):
        def call(self, inputs):
            return inputs

    with pytest.raises(ComponentError, match="own call"):
        remove_channels(Own(), PruningSettings())
    with pytest.raises(ComponentError, match=r"at most 0\.\d\d: 5 of 45 channels are frozen"):
        remove_channels(residual(), PruningSettings(0.99))
    alone = keras.Sequential([layers.Input((3,)), layers.Dense(32)])
    with pytest.raises(ComponentError, match="no channel can be removed"):
        remove_channels(alone, PruningSettings())
    free = keras.Sequential([layers.Input((None, 3)), layers.Conv1D(32, 3), layers.Conv1D(1, 3)])
    with pytest.raises(ComponentError, match="with an unknown size"):
        remove_channels(free, PruningSettings())
    removal = remove_channels(free, PruningSettings(measure="parameters"))
    assert removal.report["flops"] == {"before": None, "after": None}
    assert removal.model.output_shape == (None, None, 1)


@pytest.fixture(scope="module", params=["keras", pytest.param("tf_keras", marks=pytest.mark.nightly)])
def parent(request, tmp_path_factory, digits_examples) -> KerasModel:
    text = DIGITS.replace("layers.Conv2D(8", "layers.Conv2D(16").replace(
        "import keras", f"import {request.param} as keras"
    )
    text = text.replace("from keras import", f"from {request.param} import")
    folder = tmp_path_factory.mktemp(request.param)
    module = write(folder / "module.py", text)
    return train(digits_examples, module, folder / "trained", epochs=4, batch_size=64)["trained"]


@pytest.mark.nightly  # daily: test_prune_channels_properties.py
def test_half_of_the_flops_are_removed_and_fine_tuning_recovers_the_accuracy(parent, digits_examples, tmp_path):
    options = {"pattern": "channel", "sparsity": 0.5, "importance": "taylor", "epochs": 3, "batch_size": 64}
    module = parent.path.parent / "module.py"
    pruned = prune(parent, tmp_path / "pruned", digits_examples, module, **options)["pruned"]
    tuned, report = pruned.card.facts["fine_tuned"], pruned.card.facts["report"]
    assert tuned["after"]["val_accuracy"] > tuned["parent"]["val_accuracy"] - 0.015
    assert report["flops"]["after"] <= report["flops"]["before"] / 2
    assert pruned.card.facts["verified"]["surgery"]["difference"] < 1e-5
    small, model = keras_models.load(pruned), keras_models.load(parent)
    assert small.count_params() == report["parameters"]["after"] < 0.6 * model.count_params()
    assert [layer.name for layer in small.layers] == [layer.name for layer in model.layers]


def test_without_a_module_channels_are_removed_without_fine_tuning(digits_model, digits_examples, tmp_path):
    options = {"pattern": "channel", "sparsity": 0.3, "multiple": 1}
    raw = prune(digits_model, tmp_path / "raw", digits_examples, **options)["pruned"]
    assert "no module" in raw.card.facts["fine_tuned"]["reason"]
    report = raw.card.facts["report"]
    assert report["flops"]["after"] <= 0.7 * report["flops"]["before"]
    layers = {layer["layer"]: layer for layer in report["layers"]}
    assert layers["digit"]["shape_before"][1] == layers["digit"]["shape"][1] == 10
    for layer in layers.values():
        gone = np.prod(layer["shape_before"]) - np.prod(layer["shape"])
        assert layer["bytes_before"] - layer["bytes"] == 4 * gone > 0
        assert layer["gzipped"] < layer["gzipped_before"] and layer["speed"]["xnnpack"].startswith("yes: dense")
    assert report["speed"].startswith("every runtime multiplies less, in 2 of 2 kernels")


@BOTH
def test_costs_of_transposed_and_separable_convolutions_match_a_calculation_by_hand(library):
    layers = importlib.import_module(library).layers
    model = importlib.import_module(library).Sequential(
        [
            layers.Input((5, 6, 2)),
            layers.Conv2DTranspose(8, 3, strides=2, name="up"),  # every input pixel contributes to 3x3 output pixels
            layers.SeparableConv2D(4, 3, depth_multiplier=2, padding="same", strides=2, name="apart"),  # to 6x7
        ]
    )
    graph = follow_channels(model)
    cost = count_cost(model, graph, np.ones(len(graph.roots()), bool))
    assert model.output_shape == (None, 6, 7, 4)
    assert cost.flops == 2 * (9 * 2 * 8 * 5 * 6 + (9 * 8 * 2 + 16 * 4) * 6 * 7)


def test_global_scope_removes_from_the_weakest_group_and_leaves_a_tenth():
    first, second = (ChannelGroup((name,), (name,), np.arange(20) + 20 * at, None) for at, name in enumerate("ab"))
    scores = np.concatenate([np.linspace(1, 2, 20), np.linspace(10, 20, 20)])

    def select(budget: int, scope: str):
        settings = PruningSettings(scope=scope, multiple=1)
        roots = np.arange(40)
        return select_remaining([first, second], roots, scores, np.count_nonzero, budget=budget, settings=settings)

    assert counts(select(budget=22, scope="global")) == (2, 20)
    assert counts(select(budget=20, scope="global")) == (2, 18)
    assert counts(select(budget=20, scope="group")) == (10, 10)
    remaining = select(budget=30, scope="group")
    np.testing.assert_array_equal(np.flatnonzero(~remaining), [0, 1, 2, 3, 4, 20, 21, 22, 23, 24])  # the lowest scores
    assert select(budget=3, scope="global") is None


def counts(remaining):
    return int(remaining[:20].sum()), int(remaining[20:].sum())
