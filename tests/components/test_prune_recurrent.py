"""Test channel pruning of recurrent layers, whose channels are units, and of attention, whose channels are heads."""

import importlib

import numpy as np
import pytest

from tests.components.channel_models import assert_dead_channels_change_nothing, randomize_weights
from tfopt import keras_models, runtimes
from tfopt.artifacts import KerasModel
from tfopt.component import find
from tfopt.components.prune.channels.cost import count_cost
from tfopt.components.prune.channels.groups import find_groups, follow_channels
from tfopt.components.prune.channels.importance import label_free_losses, score_bundles
from tfopt.components.prune.channels.selection import remove_channels
from tfopt.components.prune.parameters import PruningSettings

SEVERAL = {"return_sequences": True}
IDS = np.array([[1, 2, 3, 0, 0], [4, 5, 6, 7, 8], [3, 2, 1, 2, 0]])  # 0 is masked


def lstm(layers, flow):
    return layers.LSTM(6, go_backwards=True)(layers.LSTM(5, use_bias=False, **SEVERAL)(flow))


def gru(layers, flow):
    flow = layers.GRU(5, reset_after=False, **SEVERAL)(flow)
    return layers.GRU(4, activation="elu")(layers.Bidirectional(layers.GRU(4, **SEVERAL))(flow))


def merged(layers, flow):
    for mode in ("sum", "ave", "mul"):
        flow = layers.Bidirectional(layers.SimpleRNN(5, activation="relu", **SEVERAL), merge_mode=mode)(flow)
    backward = layers.LSTM(4, recurrent_activation="hard_sigmoid", go_backwards=True)
    return layers.Bidirectional(layers.GRU(4), backward_layer=backward)(flow)


def attention(layers, flow):
    memory = layers.Dense(6, name="memory")(flow)
    flow = layers.MultiHeadAttention(4, 3, value_dim=2, use_bias=False)(flow, memory, key=flow, use_causal_mask=True)
    flow = layers.MultiHeadAttention(3, 2, output_shape=5)(query=flow, value=memory)
    return layers.GlobalAveragePooling1D()(flow)


def repeated(layers, flow):
    """Call a layer twice, at different lengths."""
    shared = layers.SimpleRNN(5)
    state = shared(flow)
    return layers.Add()([state, shared(layers.Dense(8)(layers.RepeatVector(3)(state)))])


def text_model(library, body, masked=True):
    keras = importlib.import_module(library)
    keras.backend.clear_session()
    ids = keras.layers.Input((5,), dtype="int32", name="ids")
    flow = body(keras.layers, keras.layers.Embedding(20, 8, mask_zero=masked)(ids))
    model = keras.Model(ids, keras.layers.Dense(3, name="answer")(flow))
    randomize_weights(model, np.random.default_rng(0))
    return model


@pytest.mark.parametrize("body", [lstm, attention])
def test_dead_units_and_heads_are_removed_without_a_difference(body):
    assert_dead_channels_change_nothing(text_model("keras", body), IDS, 0)


@pytest.mark.nightly  # Keras 2 compiles each recurrent layer for each call
@pytest.mark.parametrize("body", [lstm, gru, merged, attention, repeated])
@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_dead_units_and_heads_of_every_layer_are_removed_without_a_difference(library, body):
    model = text_model(library, body)
    groups = find_groups(follow_channels(model))
    assert [group.makers for group in groups if group.frozen] == [("answer",)]
    for seed in range(2):
        assert_dead_channels_change_nothing(model, IDS, seed)


def test_a_mask_reaches_a_nested_model():
    import keras

    nested = keras.Sequential([keras.layers.Input((5, 8)), keras.layers.SimpleRNN(4, dropout=0.2)])
    model = text_model("keras", lambda layers, flow: nested(flow))
    assert [group.makers for group in find_groups(follow_channels(model)) if group.frozen] == [("answer",)]
    assert_dead_channels_change_nothing(model, IDS, 0)


@pytest.mark.nightly
def test_units_of_unequal_output_at_zero_are_removed_with_the_weights_that_read_them():
    model = text_model("keras", lambda layers, flow: layers.LSTM(16, activation="sigmoid")(flow))
    removal = remove_channels(model, PruningSettings(0.3, multiple=1))
    np.testing.assert_allclose(removal.model(IDS), removal.parent(IDS), rtol=1e-5, atol=1e-6)
    assert removal.model.layers[-2].units < 16


def test_costs_of_units_and_heads_match_a_calculation_by_hand():
    def body(layers, flow):
        flow = layers.GRU(6, **SEVERAL)(layers.Bidirectional(layers.LSTM(7, **SEVERAL))(flow))
        return layers.GlobalAveragePooling1D()(layers.MultiHeadAttention(4, 3, value_dim=2)(flow, flow))

    model = text_model("keras", body)
    graph = follow_channels(model)
    bidirectional, gru_kernels = 2 * 4 * (8 * 7 + 7 * 7), 3 * (14 * 6 + 6 * 6)
    heads = 6 * 4 * (3 + 3 + 2) + 4 * 2 * 6
    cost = count_cost(model, graph, np.ones(len(graph.roots()), bool))
    assert cost.flops == 2 * (5 * (bidirectional + gru_kernels + heads) + 6 * 3)


@pytest.mark.parametrize(("size", "heads"), [(16, [8, 7, 6, 5, 4, 3, 2, 1]), (4, [8, 6, 4, 2])])
def test_a_head_counts_as_the_channels_of_its_values(size, heads):
    model = text_model(
        "keras",
        lambda layers, flow: layers.GlobalAveragePooling1D()(
            layers.MultiHeadAttention(8, 2, value_dim=size, name="heads")(flow, flow)
        ),
    )
    (group,) = (group for group in find_groups(follow_channels(model)) if group.makers == ("heads",) and group.size > 1)
    assert group.widths(8) == heads
    smaller = remove_channels(model, PruningSettings(0.4, layers=("heads",))).model
    assert smaller.get_layer("heads").num_heads in heads[1:]


def test_the_least_important_units_and_heads_are_removed():
    def body(layers, flow):
        flow = layers.LSTM(16, name="lstm", **SEVERAL)(flow)
        return layers.GlobalAveragePooling1D()(layers.MultiHeadAttention(8, 2, name="heads")(flow, flow))

    model = text_model("keras", body)
    kernels = model.get_layer("lstm").get_weights()
    columns = np.arange(64).reshape(4, 16)[:, 3:9].ravel()  # of six units, in the blocks of four gates
    for kernel in kernels[:2]:
        kernel[:, columns] *= 0.01
    model.get_layer("lstm").set_weights(kernels)
    weights = model.get_layer("heads").get_weights()
    weights[4][:, 2:6] *= 0.01  # values
    for chooser in weights[0], weights[2]:  # queries and keys
        chooser[:, :2] *= 0.001
    model.get_layer("heads").set_weights(weights)
    units, heads = (
        next(group.bundles for group in find_groups(follow_channels(model)) if group.makers == (name,))
        for name in ("lstm", "heads")
    )
    scores = score_bundles("l2", follow_channels(model))
    assert set(np.argsort(scores[units])[:6]) == set(range(3, 9))
    assert set(np.argsort(scores[heads])[:4]) == set(range(2, 6))
    removal = remove_channels(model, PruningSettings(0.3, layers=("lstm",)))
    left = np.delete(np.arange(64).reshape(4, 16), range(3, 11), axis=1)
    remaining = removal.model.get_layer("lstm").get_weights()[1]
    assert remaining.shape == (8, 32)
    assert np.isin(remaining, kernels[1]).all()
    assert set(remaining[:, 0]) <= set(kernels[1][:, left[0, 0]])


@pytest.mark.nightly  # daily: test_prune_channels.py
def test_taylor_scores_of_units_and_heads_are_first_order_changes_of_the_loss():
    def body(layers, flow):
        flow = layers.GRU(4, name="gru", **SEVERAL)(flow)
        return layers.GlobalAveragePooling1D()(layers.MultiHeadAttention(3, 2, name="heads")(flow, flow))

    model = text_model("keras", body, masked=False)
    graph = follow_channels(model)
    (loss,) = label_free_losses(model, {"ids": IDS[:1]})
    scores, roots = score_bundles("taylor", graph, [loss]), graph.roots()
    for name in ("gru", "heads"):
        layer, group = model.get_layer(name), next(one for one in find_groups(graph) if one.makers == (name,))
        before = layer.get_weights()
        for bundle in group.bundles:
            losses = []
            for factor in (0.99, 1.01):
                arrays = [array.copy() for array in before]
                for cut in graph.cuts.values():
                    if cut.layer is layer and cut.role in ("makes", "bias"):
                        scale = np.where(roots[cut.labels] == bundle, factor, 1.0)
                        shape = [-1 if axis == cut.axis else 1 for axis in range(arrays[cut.weight].ndim)]
                        arrays[cut.weight] = arrays[cut.weight] * scale.reshape(shape)
                layer.set_weights(arrays)
                losses.append(float(loss()))
            layer.set_weights(before)
            np.testing.assert_allclose(scores[bundle], abs(losses[1] - losses[0]) / 0.02, rtol=0.02, atol=1e-4)


REFUSED = {
    "stateful": (lambda layers, flow: layers.LSTM(4, stateful=True)(flow), "it is stateful"),
    "return_state": (lambda layers, flow: layers.GRU(4, return_state=True)(flow)[0], "it has several outputs"),
    "initial_state": (
        lambda layers, flow: layers.GRU(8)(flow, initial_state=layers.GlobalMaxPooling1D()(flow)),
        "it is called with an initial state",
    ),
    "cell": (lambda layers, flow: layers.RNN(layers.LSTMCell(4))(flow), "layers of class RNN are not followed"),
    "wrapped cell": (
        lambda layers, flow: layers.Bidirectional(layers.RNN(layers.GRUCell(4)))(flow),
        "layers of class RNN are not followed",
    ),
    "two outputs": (
        lambda layers, flow: layers.Add()(layers.Bidirectional(layers.LSTM(4), merge_mode=None)(flow)),
        "it has several outputs",
    ),
    "scores": (
        lambda layers, flow: layers.Flatten()(
            layers.MultiHeadAttention(2, 4)(flow, flow, return_attention_scores=True)[0]
        ),
        "it has several outputs",
    ),
    "mask of heads": (
        lambda layers, flow: layers.Flatten()(
            layers.MultiHeadAttention(2, 4)(
                flow, flow, attention_mask=layers.Reshape((2, 5, 5))(layers.Dense(10)(flow))
            )
        ),
        "its mask an axis of heads",
    ),
    "output of two axes": (
        lambda layers, flow: layers.Flatten()(layers.MultiHeadAttention(2, 4, output_shape=(2, 3))(flow, flow)),
        "its output has several axes",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_unsupported_settings_are_not_followed_with_a_reason(kind):
    import keras

    body, reason = REFUSED[kind]
    ids = keras.layers.Input((5,), batch_size=3, dtype="int32", name="ids")
    flow = keras.layers.Embedding(20, 8, name="made")(ids)
    model = keras.Model(ids, keras.layers.Dense(3)(body(keras.layers, flow)))
    graph = follow_channels(model)
    assert reason in " ".join(graph.abandoned.values())
    made = next(group for group in find_groups(graph) if group.makers == ("made",))
    assert reason in (made.frozen or "")


def test_gates_that_mix_units_freeze_them():
    model = text_model("keras", lambda layers, flow: layers.LSTM(4, recurrent_activation="softmax")(flow))
    made, units, _ = find_groups(follow_channels(model))
    assert "the activation softmax of 'lstm" in (units.frozen or "")
    assert made.frozen is None


@pytest.mark.nightly
@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_files_of_a_pruned_network_agree_with_its_saved_model(library, tmp_path):
    def body(layers, flow):
        return layers.LSTM(16)(layers.Bidirectional(layers.GRU(16, **SEVERAL))(flow))

    keras_models.save(text_model(library, body, masked=False), tmp_path / "model")
    pruned = find("prune")(KerasModel(tmp_path / "model"), tmp_path / "pruned", pattern="channel")["pruned"]
    batch = {"ids": IDS[:1].astype("int32")}
    with runtimes.load(pruned) as served:
        (expected,) = served.run(batch).values()
    for name in ("export_tflite", "export_onnx"):
        exported = find(name)(pruned, tmp_path / name)
        with runtimes.load(next(iter(exported.values()))) as runtime:
            (received,) = runtime.run(batch).values()
        np.testing.assert_allclose(received, expected, rtol=1e-4, atol=1e-5)


def test_units_before_a_function_that_only_the_saved_model_has_stay(tmp_path):
    import tf_keras
    from tf_keras import layers

    flow = x = layers.Input((8,), name="x")
    for units in (16, 24):
        flow = layers.Dense(units)(flow)
        flow = layers.Activation((lambda values: values * 2) if units == 24 else "relu")(flow)
    tf_keras.Model(x, layers.Dense(2)(flow)).save(str(tmp_path / "model"), save_format="tf")
    removal = remove_channels(tf_keras.models.load_model(str(tmp_path / "model")), PruningSettings(0.1))
    assert [layer.units for layer in removal.model.layers if hasattr(layer, "units")] == [8, 24, 2]
    (reason,) = {group.frozen for group in find_groups(follow_channels(removal.parent)) if group.makers == ("dense_1",)}
    assert "its function is only in the SavedModel" in reason
