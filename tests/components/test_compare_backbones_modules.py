"""The modules that `compare_backbones` writes: what `train` takes, as a person would write it, with weights drawn."""

import ast
import inspect
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tfopt.artifacts import Examples
from tfopt.components.compare_backbones.backbones import FAMILIES, read_backbones
from tfopt.components.compare_backbones.keras_modules import file_name, module_text
from tfopt.components.compare_backbones.reading import LIGHT
from tfopt.components.compare_backbones.request import Question
from tfopt.components.inspect_model.backbones import TABLE
from tfopt.measurement.goals import read_goals

ASKED = Question(
    backbones=read_backbones(["MobileNetV2 0.35", "MobileNet 0.25"]),
    task="classification",
    image="image",
    label="label",
    formats=["saved_model"],
    goals=read_goals(["quality max_degradation 1%"]),
    objective="latency",
    proven=True,
    epochs=1,
    records=100,
    batch_size=32,
    seconds=0.4,
    threads=1,
    seed=0,
    classes=10,
    stored=(8, 8, 1),
    taken=(32, 32, 1),
)


def test_names_are_those_of_keras_and_of_the_table_of_inspect_model():
    import keras

    assert list(map(str, read_backbones([*TABLE]))) == [*TABLE]
    assert list(map(str, read_backbones(LIGHT))) == LIGHT
    for builder, family in FAMILIES.items():
        taken = inspect.signature(getattr(keras.applications, builder)).parameters
        assert ("alpha" in taken) == family.widths, builder
        assert ("include_preprocessing" in taken) == bool(family.options), builder
        assert {"include_top", "weights", "input_tensor", "pooling"} <= taken.keys()


@pytest.mark.parametrize(
    ("name", "asked", "outputs", "scaled"),
    [
        ("MobileNetV2 0.35", ASKED, 10, True),
        ("EfficientNetB0", replace(ASKED, stored=(32, 32, 1)), 10, False),
        ("MobileNetV3Small 0.5", replace(ASKED, task="regression", classes=2), 2, True),
    ],
)
def test_a_module_is_what_train_takes_with_the_head_and_the_pixels_in_place(name, asked, outputs, scaled, tmp_path):
    import keras

    from tfopt.artifacts.tensor_spec import TensorSpec
    from tfopt.training.model_assembly import assemble
    from tfopt.training.user_module import UserModule

    (backbone,) = read_backbones([name])
    file = tmp_path / file_name(backbone)
    file.write_text(module_text(backbone, asked))
    (tmp_path / "examples.json").write_text(json.dumps({"features": {"image": {"shape": list(asked.stored)}}}))
    pixels = TensorSpec("float32", (None, int(np.prod(asked.stored))))
    stored = {"image": pixels, "label": TensorSpec("int64", (None, 1))}
    parts = assemble(UserModule(file), stored, Examples(tmp_path), "label")
    assert parts.saved.input_shape == (None, *asked.stored)
    assert parts.saved.output_shape == (None, outputs)
    alpha = {} if backbone.alpha == 1 else {"alpha": backbone.alpha}
    bare = getattr(keras.applications, backbone.builder)(
        include_top=False, weights=None, input_shape=asked.taken, pooling="avg", **alpha
    )
    assert parts.saved.count_params() == bare.count_params() + (bare.output_shape[1] + 1) * outputs
    scores = np.array(parts.saved(np.full((1, *asked.stored), 200.0, "float32")))
    assert np.isclose(scores.sum(), 1) == (asked.task == "classification")
    if scaled:
        for pixel, scaled_to in ((0, -1), (255, 1)):
            flat = np.full((1, *asked.stored), pixel, "float32")
            prepared = np.array(parts.preprocessing(flat)["image"])
            assert prepared.shape == (1, *asked.taken)
            assert np.allclose(prepared, scaled_to)
    else:
        assert parts.preprocessing is None


def test_modules_read_as_a_person_would_write_them(tmp_path):
    for backbone in read_backbones(LIGHT):
        for task in ("classification", "regression"):
            for stored in ((32, 32, 1), (8, 8, 1)):
                text = module_text(backbone, replace(ASKED, task=task, stored=stored))
                (tmp_path / f"{backbone} {task} {stored[0]}.py".replace(" ", "_")).write_text(text)
                assert (ast.get_docstring(ast.parse(text)) or "").startswith(f"{backbone} for images of 32x32x1")
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "format", "--diff", "--line-length=120", "--isolated", tmp_path], check=True)
    subprocess.run([*ruff, "check", "--select=E,F,I", "--line-length=120", "--isolated", tmp_path], check=True)


def test_an_untrained_model_has_no_weights_that_a_converter_could_leave_out():
    import keras

    from tfopt.components.compare_backbones.settling import settle

    keras.utils.set_random_seed(0)
    layers = [keras.layers.Conv2D(8, 3, padding="same", activation="relu"), keras.layers.BatchNormalization()]
    image = flow = keras.Input((8, 8, 1))
    for layer in [*layers, keras.layers.Conv2D(8, 3, use_bias=False), norm := keras.layers.BatchNormalization()]:
        flow = layer(flow)
    model = keras.Model(image, flow)
    kernels = [np.array(weight) for weight in model.trainable_weights if weight.path.endswith("kernel")]
    settle(model, np.random.default_rng(0).integers(0, 256, (32, 8, 8, 1)).astype("float32"), 0)
    again = [np.array(weight) for weight in model.trainable_weights if weight.path.endswith("kernel")]
    assert all(np.array_equal(*pair) for pair in zip(kernels, again, strict=True))
    assert all(np.ptp(np.array(weight)) > 0 for weight in model.weights if weight.dtype == "float32" and weight.shape)
    answers = np.array(model(np.random.default_rng(1).integers(0, 256, (64, 8, 8, 1)).astype("float32")))
    scale, shift = np.array(norm.gamma), np.array(norm.beta)
    assert np.allclose(answers.std((0, 1, 2)) / np.abs(scale), 1, atol=0.25)
    assert np.allclose(answers.mean((0, 1, 2)) - shift, 0, atol=0.25)
    assert norm.momentum == keras.layers.BatchNormalization().momentum


@pytest.mark.nightly
@pytest.mark.parametrize("builder", FAMILIES)
def test_each_family_takes_images_of_its_least_side_and_keras_says_no_smaller(builder: str, tmp_path):
    import keras

    from tfopt.training.user_module import UserModule

    (backbone,) = read_backbones([builder])
    least = backbone.family.least
    file = tmp_path / "module.py"
    file.write_text(module_text(backbone, replace(ASKED, stored=(least, least, 3), taken=(least, least, 3))))
    assert UserModule(file).call("build_model").output_shape == (None, 10)
    smaller = {"include_top": False, "weights": None, "input_shape": (least - 1, least - 1, 3)}
    with pytest.raises(ValueError, match="size must be at least"):
        getattr(keras.applications, builder)(**smaller)
