import itertools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_model_optimization.sparsity import keras as sparsity

from tfopt.components.prune import patterns
from tfopt.components.prune.kernels import find_kernels
from tfopt.components.prune.masked_training import Masks, _toolkit_schedule, wrap_kernels
from tfopt.components.prune.parameters import Pattern, parse_block, parse_ratio
from tfopt.components.prune.patterns import plan_schedule
from tfopt.errors import ComponentError
from tfopt.keras_models.weight_constraints import is_n_m

PATTERNS = {
    "magnitude": (Pattern("magnitude"), {}),
    "2:4": (Pattern("n_m", ratio=(2, 4)), {"sparsity_m_by_n": (2, 4)}),
    "1:4": (Pattern("n_m", ratio=(1, 4)), {"sparsity_m_by_n": (3, 4)}),
    "1x4": (Pattern("block", block=(1, 4)), {"block_size": (1, 4)}),
    "3x3": (Pattern("block", block=(3, 3)), {"block_size": (3, 3)}),  # divides neither side
}


@pytest.mark.parametrize(
    "name", [*("magnitude", "2:4", "1x4"), *(pytest.param(name, marks=pytest.mark.nightly) for name in ("1:4", "3x3"))]
)
def test_masks_are_those_of_the_toolkit_for_the_same_weights(name):
    """Check the masks of Keras 3, and the wrappers of Keras 2, which get the pattern as the toolkit's options."""
    import tf_keras

    pattern, options = PATTERNS[name]
    tf_keras.utils.set_random_seed(7)
    layers = [tf_keras.layers.Flatten(), tf_keras.layers.Dense(23)]
    if pattern.name != "block":  # for blocks the toolkit supports matrices only
        layers.insert(0, tf_keras.layers.Conv2D(5, 3))
    model = tf_keras.Sequential([tf_keras.Input((4, 4, 8)), *layers])
    kernels = find_kernels(model, Pattern("magnitude"), [])
    before = [kernel.values for kernel in kernels]
    wrapped = wrap_kernels(model, kernels, pattern, plan_schedule("constant", 0.7, steps=1))
    wrapped.compile(tf_keras.optimizers.SGD(0.0), "mse", run_eagerly=True)
    wrapped.fit(np.ones((1, 4, 4, 8)), np.ones((1, 23)), callbacks=[sparsity.UpdatePruningStep()], verbose=0)
    wrappers = [layer for layer in wrapped.layers if getattr(layer, "pruning_vars", [])]
    settings = {"block_size": (1, 1), "sparsity_m_by_n": None} | options
    assert all({key: getattr(layer, key) for key in settings} == settings for layer in wrappers)
    theirs = [mask.numpy() for layer in wrappers for _, mask, _ in layer.pruning_vars]
    assert len(theirs) == len(kernels) > 0
    for kernel, weights in zip(kernels, before, strict=True):
        kernel.variable.assign(weights)
    Masks(kernels, pattern).update(0.7)
    for kernel, weights, mask in zip(kernels, before, theirs, strict=True):
        np.testing.assert_array_equal(patterns.draw_mask(weights, pattern, 0.7, -2), mask)
        np.testing.assert_array_equal(kernel.values, weights * mask)


@pytest.mark.parametrize(("kind", "steps"), [("polynomial", 1000), ("polynomial", 50), ("constant", 70)])
def test_the_schedule_is_that_of_the_toolkit_step_by_step(kind, steps):
    ours = plan_schedule(kind, 0.8, steps=steps)
    theirs = _toolkit_schedule(ours)
    for step in range(1, steps + 1):
        due, sparsity = theirs(tf.constant(step, tf.int64))
        assert bool(due) == ours.is_due(step)
        if due:
            assert float(sparsity) == pytest.approx(ours.sparsity(step), abs=1e-6)
    assert ours.is_due(ours.end)
    assert ours.sparsity(ours.end) == pytest.approx(0.8)
    assert ours.end <= steps / 2 + 1


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_a_short_training_still_reaches_its_sparsity(steps):
    schedule = plan_schedule("polynomial", 0.8, steps=steps)
    assert schedule.is_due(schedule.end)
    assert schedule.end <= steps
    assert schedule.sparsity(schedule.end) == pytest.approx(0.8)


def test_equal_weights_are_pruned_to_the_requested_sparsity():
    assert patterns.magnitude_mask(np.ones((10, 10)), 0.8).sum() == 20
    assert patterns.magnitude_mask(np.zeros((10, 10)), 0.8).sum() == 20
    assert patterns.n_m_mask(np.ones((8, 3)), 1, 4, axis=0).sum() == 6
    assert patterns.block_mask(np.ones((8, 8)), 0.75, 2, 2).sum() == 16


def test_groups_lie_along_the_axis():
    weights = np.random.default_rng(0).normal(size=(3, 3, 8, 5))
    pruned = weights * patterns.n_m_mask(weights, 2, 4, axis=2)
    assert is_n_m(pruned, 2, 4, 2)
    assert not is_n_m(pruned, 2, 4, 0)
    assert not is_n_m(weights, 2, 4, 2)
    sums = np.abs(pruned).reshape(9, 2, 4, 5).sum(2)
    np.testing.assert_allclose(sums, np.sort(np.abs(weights).reshape(9, 2, 4, 5), axis=2)[:, :, 2:].sum(2))


@pytest.mark.parametrize("text", ["4:2", "2:2", "0:4", "2-4", "two:four", ""])
def test_an_invalid_ratio_is_refused(text):
    with pytest.raises(ComponentError, match="write 2:4"):
        parse_ratio(text)


@pytest.mark.parametrize("text", ["1x1", "0x4", "4", "x", "axb"])
def test_an_invalid_block_is_refused(text):
    with pytest.raises(ComponentError, match="write 1x4"):
        parse_block(text)


OPTIMIZERS = {
    "sgd": lambda keras: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda keras: keras.optimizers.Adam(0.05),
    "adamw": lambda keras: keras.optimizers.AdamW(0.05, weight_decay=0.1, global_clipnorm=0.5),
    "lamb": lambda keras: keras.optimizers.Lamb(0.05),
    "muon": lambda keras: keras.optimizers.Muon(0.05),  # its steps combine all weights of a matrix
    "accumulating": lambda keras: keras.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2),
    "scaled": lambda keras: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.05)),
    "averaging": lambda keras: keras.optimizers.Adam(0.05, use_ema=True, ema_overwrite_frequency=3),
}


NIGHTLY = {
    ("adamw", False),
    ("lamb", False),
    ("accumulating", False),
    ("sgd", True),
    ("adam", True),
}  # covered by the other cases
OPTIMIZED = [
    pytest.param(*case, marks=[pytest.mark.nightly] if case in NIGHTLY else [])
    for case in [*((name, False) for name in OPTIMIZERS), ("sgd", True), ("adam", True)]
]


@pytest.mark.parametrize(("optimizer", "jit"), OPTIMIZED)
def test_masked_weights_and_their_optimizer_state_stay_zero_after_every_step(optimizer, jit):
    import keras

    model, data = small()
    kernels = find_kernels(model, Pattern("magnitude"), [])
    pruning = Masks(kernels, Pattern("magnitude"))
    model.compile(OPTIMIZERS[optimizer](keras), "mse", jit_compile=jit)
    model.optimizer.build(model.trainable_variables)
    draw = np.random.default_rng(2)
    for slot in model.optimizer.variables:  # it has momentum before the masks are attached
        if len(slot.shape) == 2:
            slot.assign(draw.uniform(0.001, 0.002, slot.shape))
    pruning.attach(model.optimizer)
    before = [kernel.values for kernel in kernels]
    zeros: list[int] = []
    counting = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: zeros.append(sum((kernel.values == 0).sum() for kernel in kernels))
    )
    schedule = plan_schedule("constant", 0.75, steps=12)
    model.fit(*data, epochs=3, batch_size=8, verbose=0, callbacks=[pruning.callback(model, schedule), counting])
    assert zeros == [84] * 12  # 75 % of 8x8 and 8x6
    for kernel, initial in zip(kernels, before, strict=True):
        live = kernel.values != 0
        assert (kernel.values != initial)[live].all()
        slots = [v for v in model.optimizer.variables if v.shape == kernel.variable.shape and "iter" not in v.path]
        own = [v for v in slots if kernel.variable.path.replace("/", "_") in v.path]
        assert own
        for slot in own:
            assert not slot.numpy()[~live].any(), slot.path


def test_the_polynomial_schedule_grows_and_then_masks_do_not_change():
    model, data = small()
    kernels = find_kernels(model, Pattern("magnitude"), [])
    pruning = Masks(kernels, Pattern("magnitude"))
    model.compile("adam", "mse")
    pruning.attach(model.optimizer)
    schedule = plan_schedule("polynomial", 0.75, steps=40)
    live_weights = []
    import keras

    seen = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: live_weights.append(kernels[0].values != 0)
    )
    model.fit(*data, epochs=10, batch_size=8, verbose=0, callbacks=[pruning.callback(model, schedule), seen])
    counts = [int(live.sum()) for live in live_weights]
    assert counts[0] == 64
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) > 10
    assert counts[schedule.end - 1] == 16
    for live in live_weights[schedule.end :]:
        np.testing.assert_array_equal(live, live_weights[schedule.end - 1])
    for earlier, later in itertools.pairwise(live_weights):
        assert not (later & ~earlier).any()  # pruned weights stay pruned


def small():
    """Build two dense layers of 8x8 and 8x6, and 32 records."""
    import keras

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(6)])
    draw = np.random.default_rng(0)
    return model, (draw.normal(size=(32, 8)).astype("float32"), draw.normal(size=(32, 6)).astype("float32"))
