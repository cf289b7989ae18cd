"""Tests of the modules that `compare_backbones` writes, and of the table of backbones."""

import ast
import inspect
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tfopt.artifacts import Examples
from tfopt.components.compare_backbones.keras_modules import file_name, module_text
from tfopt.components.compare_backbones.parameters import Settings
from tfopt.components.compare_backbones.resolved_settings import ResolvedSettings
from tfopt.keras_models.backbones import ARCHITECTURES, COSTS, LIGHT_BACKBONES, read_backbones

RESOLVED = ResolvedSettings(
    Settings(
        backbones=("MobileNetV2 0.35", "MobileNet 0.25"),
        formats=("saved_model",),
        epochs=1,
        records=100,
        batch_size=32,
        seconds=0.4,
    ),
    classes=10,
    stored_size=(8, 8, 1),
    input_size=(32, 32, 1),
)


def with_settings(**settings) -> ResolvedSettings:
    """Return RESOLVED with other settings."""
    return replace(RESOLVED, settings=replace(RESOLVED.settings, **settings))


def test_table_of_backbones_agrees_with_keras():
    import keras

    assert list(map(str, read_backbones([*COSTS]))) == [*COSTS]
    assert list(map(str, read_backbones(LIGHT_BACKBONES))) == [*LIGHT_BACKBONES]
    for builder, architecture in ARCHITECTURES.items():
        parameters = inspect.signature(getattr(keras.applications, builder)).parameters
        assert ("alpha" in parameters) == architecture.has_alpha, builder
        assert ("include_preprocessing" in parameters) == bool(architecture.options), builder
        assert {"include_top", "weights", "input_tensor", "pooling"} <= parameters.keys()


@pytest.mark.parametrize(
    ("name", "resolved", "outputs", "scaled"),
    [
        ("MobileNetV2 0.35", RESOLVED, 10, True),
        pytest.param(
            "EfficientNetB0", replace(RESOLVED, stored_size=(32, 32, 1)), 10, False, marks=pytest.mark.nightly
        ),
        pytest.param(
            "MobileNetV3Small 0.5",
            replace(with_settings(task="regression"), classes=2),
            2,
            True,
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_module_has_the_head_and_the_preprocessing(name, resolved, outputs, scaled, tmp_path):
    import keras

    from tfopt.artifacts.tensor_spec import TensorSpec
    from tfopt.training.model_assembly import assemble
    from tfopt.training.user_module import UserModule

    (backbone,) = read_backbones([name])
    file = tmp_path / file_name(backbone)
    file.write_text(module_text(backbone, resolved))
    (tmp_path / "examples.json").write_text(json.dumps({"features": {"image": {"shape": list(resolved.stored_size)}}}))
    pixels = TensorSpec("float32", (None, int(np.prod(resolved.stored_size))))
    stored = {"image": pixels, "label": TensorSpec("int64", (None, 1))}
    parts = assemble(UserModule(file), stored, Examples(tmp_path), "label")
    assert parts.saved.input_shape == (None, *resolved.stored_size)
    assert parts.saved.output_shape == (None, outputs)
    alpha = {} if backbone.alpha == 1 else {"alpha": backbone.alpha}
    headless = getattr(keras.applications, backbone.builder)(
        include_top=False, weights=None, input_shape=resolved.input_size, pooling="avg", **alpha
    )
    assert parts.saved.count_params() == headless.count_params() + (headless.output_shape[1] + 1) * outputs
    scores = np.array(parts.saved(np.full((1, *resolved.stored_size), 200.0, "float32")))
    assert np.isclose(scores.sum(), 1) == (resolved.settings.task == "classification")
    if scaled:
        for pixel, scaled_to in ((0, -1), (255, 1)):
            flat = np.full((1, *resolved.stored_size), pixel, "float32")
            prepared = np.array(parts.preprocessing(flat)["image"])
            assert prepared.shape == (1, *resolved.input_size)
            assert np.allclose(prepared, scaled_to)
    else:
        assert parts.preprocessing is None


def test_modules_are_formatted_and_pass_ruff(tmp_path):
    for backbone in read_backbones(LIGHT_BACKBONES):
        for task in ("classification", "regression"):
            for stored in ((32, 32, 1), (8, 8, 1)):
                text = module_text(backbone, replace(with_settings(task=task), stored_size=stored))
                (tmp_path / f"{backbone} {task} {stored[0]}.py".replace(" ", "_")).write_text(text)
                assert (ast.get_docstring(ast.parse(text)) or "").startswith(f"{backbone} for images of 32x32x1")
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "format", "--diff", "--line-length=120", "--isolated", tmp_path], check=True)
    subprocess.run([*ruff, "check", "--select=E,F,I", "--line-length=120", "--isolated", tmp_path], check=True)


def test_constant_weights_become_random_and_batch_norms_get_statistics():
    import keras

    from tfopt.components.compare_backbones.cost import randomize_constant_weights

    keras.utils.set_random_seed(0)
    layers = [keras.layers.Conv2D(8, 3, padding="same", activation="relu"), keras.layers.BatchNormalization()]
    image = flow = keras.Input((8, 8, 1))
    for layer in [*layers, keras.layers.Conv2D(8, 3, use_bias=False), norm := keras.layers.BatchNormalization()]:
        flow = layer(flow)
    model = keras.Model(image, flow)
    kernels = [np.array(weight) for weight in model.trainable_weights if weight.path.endswith("kernel")]
    randomize_constant_weights(model, np.random.default_rng(0).integers(0, 256, (32, 8, 8, 1)).astype("float32"), 0)
    kernels_after = [np.array(weight) for weight in model.trainable_weights if weight.path.endswith("kernel")]
    assert all(np.array_equal(*pair) for pair in zip(kernels, kernels_after, strict=True))
    assert all(np.ptp(np.array(weight)) > 0 for weight in model.weights if weight.dtype == "float32" and weight.shape)
    outputs = np.array(model(np.random.default_rng(1).integers(0, 256, (64, 8, 8, 1)).astype("float32")))
    scale, shift = np.array(norm.gamma), np.array(norm.beta)
    assert np.allclose(outputs.std((0, 1, 2)) / np.abs(scale), 1, atol=0.25)
    assert np.allclose(outputs.mean((0, 1, 2)) - shift, 0, atol=0.25)
    assert norm.momentum == keras.layers.BatchNormalization().momentum


@pytest.mark.nightly
@pytest.mark.parametrize("builder", ARCHITECTURES)
def test_smallest_image_of_each_architecture_is_that_of_keras(builder: str, tmp_path):
    import keras

    from tfopt.training.user_module import UserModule

    (backbone,) = read_backbones([builder])
    side = backbone.architecture.min_side
    file = tmp_path / "module.py"
    file.write_text(module_text(backbone, replace(RESOLVED, stored_size=(side, side, 3), input_size=(side, side, 3))))
    assert UserModule(file).call("build_model").output_shape == (None, 10)
    smaller = {"include_top": False, "weights": None, "input_shape": (side - 1, side - 1, 3)}
    with pytest.raises(ValueError, match="size must be at least"):
        getattr(keras.applications, builder)(**smaller)
