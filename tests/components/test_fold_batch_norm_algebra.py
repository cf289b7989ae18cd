"""Test the algebra of `fold_batch_norm` in memory: every kind of layer, every refusal, deep and random networks."""

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.components.batch_norm_models import batch_norms, difference, fold, randomized

ONE_FOLD, DEEP = 1e-5, 1e-4
# Daily, the drawn networks below are of both.
KERAS = pytest.mark.parametrize("keras", ["keras", pytest.param("tf_keras", marks=pytest.mark.nightly)], indirect=True)


@pytest.fixture
def keras(request):
    return importlib.import_module(request.param)


LAYERS = {
    "Conv1D": ((9, 3), {"filters": 4, "kernel_size": 3}, -1),
    "Conv1D causal": ((9, 3), {"filters": 4, "kernel_size": 3, "padding": "causal", "dilation_rate": 2}, 2),
    "Conv1D channels first": ((3, 9), {"filters": 4, "kernel_size": 3, "data_format": "channels_first"}, 1),
    "Conv2D": ((8, 8, 3), {"filters": 4, "kernel_size": 3, "padding": "same", "strides": 2}, -1),
    "Conv2D without bias": ((8, 8, 3), {"filters": 4, "kernel_size": 3, "use_bias": False}, 3),
    "Conv2D grouped": ((8, 8, 4), {"filters": 6, "kernel_size": 3, "groups": 2}, -1),
    "Conv2D dilated": ((9, 9, 3), {"filters": 4, "kernel_size": 3, "dilation_rate": 2}, -1),
    "Conv2D channels first": ((3, 8, 8), {"filters": 4, "kernel_size": 3, "data_format": "channels_first"}, 1),
    "Conv2D channels first, axis -3": (
        (4, 8, 8),
        {"filters": 4, "kernel_size": 1, "data_format": "channels_first"},
        -3,
    ),
    "Conv3D": ((5, 5, 5, 2), {"filters": 3, "kernel_size": 2}, -1),
    "Conv1DTranspose": ((6, 3), {"filters": 4, "kernel_size": 3, "strides": 2}, -1),
    "Conv2DTranspose": ((5, 5, 3), {"filters": 4, "kernel_size": 3, "strides": 2, "padding": "same"}, -1),
    "Conv2DTranspose without bias": ((5, 5, 4), {"filters": 4, "kernel_size": 3, "use_bias": False}, -1),
    "Conv3DTranspose": ((3, 3, 3, 2), {"filters": 3, "kernel_size": 2}, -1),
    "DepthwiseConv1D": ((9, 3), {"kernel_size": 3}, -1),
    "DepthwiseConv2D": ((8, 8, 3), {"kernel_size": 3, "use_bias": False}, -1),
    "DepthwiseConv2D with multiplier": ((8, 8, 3), {"kernel_size": 3, "depth_multiplier": 2}, -1),
    "SeparableConv1D": ((9, 3), {"filters": 4, "kernel_size": 3, "depth_multiplier": 2}, -1),
    "SeparableConv2D": ((8, 8, 3), {"filters": 4, "kernel_size": 3, "use_bias": False}, -1),
    "Dense": ((5,), {"units": 4}, -1),
    "Dense without bias": ((5,), {"units": 4, "use_bias": False}, 1),
    "Dense on a sequence": ((6, 5), {"units": 4}, -1),
    "Dense on an image": ((4, 4, 5), {"units": 5}, 3),
}


@KERAS
@pytest.mark.parametrize("case", LAYERS)
def test_a_batch_norm_is_folded_into_every_kind_of_layer(keras, case):
    shape, options, axis = LAYERS[case]
    layer = getattr(keras.layers, case.split()[0])(**options, name="layer")
    norm = keras.layers.BatchNormalization(axis=axis, epsilon=1e-2, name="norm")
    model = randomized(
        keras.Sequential([keras.Input(shape), layer, norm, keras.layers.Activation("tanh", name="tanh")])
    )
    after, verdicts = fold(model)
    assert verdicts == {"norm": "layer"}
    assert batch_norms(after) == []
    assert [layer.name for layer in after.layers] == ["layer", "tanh"]
    assert difference(model, after) < ONE_FOLD
    changed = after.get_layer("layer")
    changed.set_weights([weights * (1.001 if weights.ndim > 1 else 1) for weights in changed.get_weights()])
    assert difference(model, after) > ONE_FOLD, "the comparison above would not notice a wrong kernel"


@KERAS
@pytest.mark.parametrize(
    "options",
    [
        {"scale": False},
        {"center": False},
        {"scale": False, "center": False},
        {"epsilon": 1e-7},
        {"epsilon": 0.5},
        {"renorm": True},
        {"synchronized": True},
        {"axis": 3},
        {"trainable": False},
    ],
    ids=str,
)
def test_every_variant_of_batch_norm_vanishes(keras, options):
    model = randomized(_chain(keras, keras.layers.Conv2D(4, 3), keras.layers.BatchNormalization(**options)))
    after, _ = fold(model)
    assert batch_norms(after) == []
    assert difference(model, after) < ONE_FOLD


def test_keras_2_names_the_axis_in_a_list():
    import tf_keras

    model = randomized(_chain(tf_keras, tf_keras.layers.Conv2D(4, 3), tf_keras.layers.BatchNormalization(axis=[-1])))
    after, _ = fold(model)
    assert batch_norms(after) == []
    assert difference(model, after) < ONE_FOLD


@KERAS
@pytest.mark.parametrize(
    ("policy", "tolerance"), [("float64", 1e-12), ("mixed_float16", 1e-2), ("mixed_bfloat16", 5e-2)]
)
def test_every_precision_keeps_its_accuracy(keras, policy, tolerance):
    layers = keras.layers
    model = randomized(_chain(keras, layers.Conv2D(4, 3, dtype=policy), layers.BatchNormalization(dtype=policy)))
    after, _ = fold(model)
    assert batch_norms(after) == []
    assert model.output.dtype == after.output.dtype
    assert difference(model, after) < tolerance


@KERAS
def test_a_chain_of_batch_norms_vanishes_into_one_layer(keras):
    norm = keras.layers.BatchNormalization
    model = randomized(
        _chain(keras, keras.layers.Conv2D(4, 3, name="c"), norm(name="a"), norm(name="b"), norm(name="d"))
    )
    after, verdicts = fold(model)
    assert verdicts == {"a": "c", "b": "c", "d": "c"}
    assert difference(model, after) < ONE_FOLD


@KERAS
def test_a_batch_norm_that_is_the_output_leaves_its_name(keras):
    image = keras.Input((8, 8, 3))
    model = randomized(
        keras.Model(image, keras.layers.BatchNormalization(name="norm")(keras.layers.Conv2D(4, 3)(image)))
    )
    after, _ = fold(model)
    assert batch_norms(after) == []
    assert after.output_names == ["norm"]
    assert difference(model, after) < ONE_FOLD


@KERAS
def test_what_is_not_folded_into_stays_as_it_is(keras):
    layers = keras.layers
    model = _chain(keras, layers.Conv2D(4, 3, kernel_constraint="non_neg", kernel_regularizer="l2", trainable=False),
                   layers.BatchNormalization(), layers.Conv2D(2, 3, name="other"))  # fmt: skip
    before = [weights.copy() for weights in randomized(model).get_weights()]
    after, _ = fold(model)
    assert after.layers[1].kernel_regularizer is not None
    assert after.layers[1].kernel_constraint is not None
    assert not after.layers[1].trainable
    assert after.get_layer("other") is model.get_layer("other")
    assert all((now == then).all() for now, then in zip(model.get_weights(), before, strict=True)), "the parent changed"


@KERAS
def test_models_in_models_are_folded_once_however_often_they_are_called(keras):
    layers = keras.layers
    inner = _chain(keras, layers.Conv2D(4, 3, name="c"), layers.BatchNormalization(name="n"), name="inner")
    plain = keras.Sequential([keras.Input((6, 6, 4)), layers.Flatten(), layers.Dense(3)], name="plain")
    left, right = keras.Input((8, 8, 3), name="left"), keras.Input((8, 8, 3), name="right")
    middle = keras.Model([left, right], [plain(inner(left)), plain(inner(right))], name="middle")
    a, b = keras.Input((8, 8, 3), name="a"), keras.Input((8, 8, 3), name="b")
    first, second = middle([a, b])
    model = randomized(keras.Model({"a": a, "b": b}, {"sum": layers.Add()([first, second]), "first": first}))
    after, verdicts = fold(model)
    assert verdicts == {"middle/inner/n": "middle/inner/c"}
    assert batch_norms(after) == []
    draw = np.random.default_rng(0)
    inputs = {name: draw.normal(size=(4, 8, 8, 3)).astype("float32") for name in "ab"}
    assert difference(model, after, inputs) < ONE_FOLD
    assert after.get_layer("middle").get_layer("plain") is plain


@KERAS
def test_a_model_class_that_only_names_its_graph_is_folded(keras):
    class Net(keras.Model):
        def __init__(self):
            image = keras.Input((8, 8, 3), name="image")
            super().__init__(image, _norm(keras)(_conv(keras)(image)), name="net")

    image = keras.Input((8, 8, 3))
    model = randomized(keras.Model(image, keras.layers.ReLU()(Net()(image))))
    after, verdicts = fold(model)
    assert verdicts == {"net/n": "net/c"}
    assert difference(model, after) < ONE_FOLD


@KERAS
def test_masks_and_recurrent_layers_live_beside_a_fold(keras):
    layers = keras.layers
    tokens = keras.Input((7,), dtype="int32")
    flow = layers.Embedding(5, 4, mask_zero=True)(tokens)
    flow = layers.SimpleRNN(3)(layers.BatchNormalization(name="n")(layers.Dense(6, name="d")(flow)))
    model = randomized(keras.Model(tokens, flow))
    after, verdicts = fold(model)
    assert verdicts == {"n": "d"}
    assert difference(model, after, np.random.default_rng(0).integers(0, 5, (16, 7))) < ONE_FOLD


REFUSALS = {
    "an activation in the layer": ("'c' applies its activation relu first", lambda k, x: _norm(k)(_conv(k, "relu")(x))),
    "an activation between": ("it follows 'r' (ReLU), which is no convolution",
                              lambda k, x: _norm(k)(k.layers.ReLU(name="r")(_conv(k)(x)))),
    "another reader": ("the output of 'c' also goes to 'add'",
                       lambda k, x: _with(_conv(k)(x), lambda c: k.layers.Add(name="add")([c, _norm(k)(c)]))),
    "an output of the model": ("the output of 'c' is also an output of the model",
                               lambda k, x: _with(_conv(k)(x), lambda c: [c, _norm(k)(c)])),
    "training mode": ("it is called with training=True", lambda k, x: _norm(k)(_conv(k)(x), training=True)),
    "a shared layer": ("'c' is shared: called 2 times",
                       lambda k, x: _with(_conv(k), lambda c: k.layers.Add()([_norm(k)(c(x)), c(k.layers.ReLU()(x))]))),
    "a shared batch norm": ("it is shared: called 2 times",
                            lambda k, x: _with(_norm(k), lambda n: n(k.layers.ReLU()(n(_conv(k)(x)))))),
    "another axis": ("it normalizes axis 2, but the channels of 'c' are axis 3",
                     lambda k, x: _norm(k, axis=2)(_conv(k)(x))),
    "an input before it": ("it follows an input", lambda k, x: _conv(k)(_norm(k)(x))),
    "another precision": ("it computes in float32, but 'c' in float16",
                          lambda k, x: _norm(k)(_conv(k, dtype="mixed_float16")(x))),
    "a batch norm that stays": ("it follows 'r' (ReLU)",
                                lambda k, x: _norm(k, name="m")(_norm(k)(k.layers.ReLU(name="r")(x)))),
}  # fmt: skip


@KERAS
@pytest.mark.parametrize("case", REFUSALS)
def test_a_batch_norm_stays_with_the_reason(keras, case):
    reason, build = REFUSALS[case]
    image = keras.Input((8, 8, 3), name="image")
    model = randomized(keras.Model(image, build(keras, image)))
    after, verdicts = fold(model)
    assert reason in verdicts["n"]
    assert "n" in batch_norms(after)
    assert difference(model, after) == 0


@KERAS
def test_a_batch_norm_in_training_mode_by_its_model_stays(keras):
    inner = _chain(keras, keras.layers.Conv2D(4, 3, name="c"), keras.layers.BatchNormalization(name="n"), name="inner")
    image = keras.Input((8, 8, 3))
    model = keras.Model(image, keras.layers.Add()([inner(image), inner(image, training=True)]))
    assert "training=True" in fold(model)[1]["inner/n"]


@KERAS
def test_a_batch_norm_called_for_inference_explicitly_vanishes(keras):
    inner = _chain(keras, _conv(keras), keras.layers.ReLU(), _conv(keras, name="d"), _norm(keras), name="inner")
    image = keras.Input((8, 8, 3))
    flow = inner(image, training=False)
    model = randomized(keras.Model(image, _norm(keras, name="m")(_conv(keras, name="e")(flow), training=False)))
    after, verdicts = fold(model)
    assert verdicts == {"inner/n": "inner/d", "m": "e"}
    assert difference(model, after) < ONE_FOLD


@KERAS
def test_a_batch_norm_out_of_reach_is_reported_with_the_layer_around_it(keras):
    class Block(keras.layers.Layer):
        def __init__(self):
            super().__init__(name="block")
            self.norm = keras.layers.BatchNormalization(name="n")

        def call(self, inputs):
            return self.norm(inputs)

    image = keras.Input((8, 8, 3))
    repeated = keras.layers.TimeDistributed(keras.layers.BatchNormalization(name="t"), name="rows")
    _, verdicts = fold(randomized(keras.Model(image, repeated(Block()(_conv(keras)(image))))))
    assert "inside 'block' (Block)" in verdicts["block/n"]
    assert "inside 'rows' (TimeDistributed)" in verdicts["rows/t"]


@KERAS
def test_what_derives_from_a_known_layer_may_compute_something_else(keras):
    derived = type("Scaled", (keras.layers.BatchNormalization,), {})(name="n")
    strange = type("Strange", (keras.layers.Conv2D,), {})(4, 3, name="c")
    image = keras.Input((8, 8, 3))
    assert "derived from" in fold(keras.Model(image, derived(_conv(keras)(image))))[1]["n"]
    assert "'c' (Strange)" in fold(keras.Model(image, _norm(keras)(strange(image))))[1]["n"]


@KERAS
def test_a_variance_below_zero_and_weights_out_of_range_are_refused(keras):
    model = _chain(keras, _conv(keras), _norm(keras))
    model.get_layer("n").moving_variance.assign([1, -1, -2, 1])
    assert "not above zero in 2 channels" in fold(model)[1]["n"]
    half = _chain(keras, _conv(keras, dtype="mixed_float16"), _norm(keras, dtype="mixed_float16"))
    half.get_layer("n").gamma.assign([1e6] * 4)
    assert "would leave the range of float16" in fold(half)[1]["n"]


def test_virtual_batches_and_several_axes_of_keras_2_are_refused():
    import tf_keras

    virtual = _chain(tf_keras, _conv(tf_keras), _norm(tf_keras, virtual_batch_size=2))
    assert "virtual_batch_size=2" in fold(virtual)[1]["n"]
    both = _chain(tf_keras, _conv(tf_keras), _norm(tf_keras, axis=[1, 3]))
    assert "axes [1, 3] together" in fold(both)[1]["n"]


def test_quantized_and_low_rank_layers_of_keras_3_are_refused():
    import keras

    for change in (lambda layer: layer.quantize("int8"), lambda layer: layer.enable_lora(2)):
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, name="d"), _norm(keras)])
        change(model.get_layer("d"))
        assert "quantized or has LoRA weights" in fold(model)[1]["n"]


@KERAS
def test_folding_twice_is_folding_once(keras):
    model = randomized(_chain(keras, _conv(keras), _norm(keras), keras.layers.ReLU()))
    once, _ = fold(model)
    twice, verdicts = fold(once)
    assert verdicts == {}
    assert all((a == b).all() for a, b in zip(once.get_weights(), twice.get_weights(), strict=True))


def test_a_deep_network_keeps_its_answers():
    import keras

    model = randomized(
        keras.applications.MobileNetV2((32, 32, 3), alpha=0.35, weights=None, classes=10, classifier_activation=None)
    )
    after, verdicts = fold(model)
    assert len(verdicts) == 52
    assert batch_norms(after) == []
    assert difference(model, after) < DEEP


@settings(max_examples=25)
@given(steps=st.lists(st.sampled_from(["conv", "depthwise", "separable", "dense", "norm", "norm", "relu", "branch"]),
                      min_size=1, max_size=7),
       library=st.sampled_from(["keras", "tf_keras"]), seed=st.integers(0, 99))  # fmt: skip
def test_any_network_computes_the_same_and_every_batch_norm_is_accounted_for(steps, library, seed):
    keras = importlib.import_module(library)
    layers = keras.layers
    image = keras.Input((6, 6, 4))
    make = {
        "conv": lambda: layers.Conv2D(4, 3, padding="same", use_bias=False),
        "depthwise": lambda: layers.DepthwiseConv2D(3, padding="same"),
        "separable": lambda: layers.SeparableConv2D(4, 3, padding="same"),
        "dense": lambda: layers.Dense(4),
        "norm": layers.BatchNormalization,
        "relu": layers.ReLU,
    }
    flow, earlier = image, image
    for step in steps:
        flow, earlier = (layers.Add()([flow, earlier]), flow) if step == "branch" else (make[step]()(flow), earlier)
    model = randomized(keras.Model(image, layers.GlobalAveragePooling2D()(flow)), seed)
    after, results = fold(model)
    remaining = [name for name, result in results.items() if " " in result]
    assert len(results) == len(batch_norms(model))
    assert sorted(batch_norms(after)) == sorted(remaining)
    assert difference(model, after) < DEEP


def _chain(keras, *layers, name=None):
    flow = image = keras.Input((8, 8, 3))
    for layer in layers:
        flow = layer(flow)
    return keras.Model(image, flow, name=name)


def _conv(keras, activation=None, name="c", **options):
    return keras.layers.Conv2D(4, 3, activation=activation, padding="same", name=name, **options)


def _norm(keras, name="n", **options):
    return keras.layers.BatchNormalization(name=name, **options)


def _with(value, build):
    return build(value)
