"""Test TFRecords with encoded images: decoded, resized and evaluated; new names of features."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from tests.conftest import write_examples
from tfopt.artifacts import Examples
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.evaluate.component import evaluate
from tfopt.components.prepare_examples.component import prepare_examples
from tfopt.data.batches import read_batches
from tfopt.errors import ComponentError

COUNT = 90


def encoded(form, channels, count=COUNT, size=(20, 24)):
    """Return encoded images of three brightnesses, and these as classes."""
    random, classes = np.random.default_rng(0), np.arange(count) % 3
    files = []
    for number in classes:
        pixels = random.normal(60 + 60 * number, 10, (*size, channels)).clip(0, 255).astype(np.uint8)
        stream = io.BytesIO()
        Image.fromarray(pixels.squeeze()).save(stream, form)
        files.append(stream.getvalue())
    return np.array(files, object), classes


@pytest.mark.parametrize(
    ("channels", "form"),
    [
        *((1, "PNG"), (3, "JPEG")),
        *(pytest.param(*case, marks=pytest.mark.nightly) for case in ((1, "JPEG"), (3, "PNG"))),
    ],
)
def test_encoded_images_are_decoded_and_resized(form, channels, tmp_path):
    files, classes = encoded(form, channels)
    heights = np.full(COUNT, 20)
    write_examples(tmp_path / "a.tfrecord", {"image/encoded": files, "image/height": heights, "class": classes})
    pack = f"image=10x12x{channels}"
    prepare_examples(data=tmp_path / "a.tfrecord", examples=tmp_path / "examples", label="class", pack=pack)
    features = json.loads((tmp_path / "examples" / "examples.json").read_text())["features"]
    assert features["image"]["shape"] == [10, 12, channels] and set(features) == {"class", "image", "image/height"}
    specs = {"image": TensorSpec("float32", (None, 10, 12, channels)), "class": TensorSpec("int64", (None,))}
    stored = next(read_batches(Examples(tmp_path / "examples").split("train"), specs, batch_size=COUNT))
    expected = {}
    for file, number in zip(files, classes, strict=True):
        image = Image.open(io.BytesIO(file)).resize((12, 10), Image.Resampling.BILINEAR)
        expected[np.asarray(image, np.float32).tobytes()] = number
    assert [expected[image.tobytes()] for image in stored["image"]] == stored["class"].tolist()


def test_a_model_is_evaluated_on_decoded_images(tmp_path):
    import keras

    files, classes = encoded("JPEG", 3)
    write_examples(tmp_path / "a.tfrecord", {"image/encoded": files, "image/class/label": classes})
    data = {"data": tmp_path / "a.tfrecord", "label": "image/class/label"}
    prepare_examples(**data, examples=tmp_path / "examples", pack="image=8x8x3")
    image = keras.Input((8, 8, 3))  # of another name: the only feature that fits feeds it
    mean = keras.layers.Rescaling(1 / 60, offset=-2)(keras.layers.GlobalAveragePooling2D()(image))  # -1, 0, 1
    scores = keras.layers.Dense(3, "softmax")
    model = keras.Model(image, scores(mean))
    scores.set_weights([np.tile(np.float32([-3, 0, 3]), (3, 1)), np.float32([0, 4, 0])])
    model.save(tmp_path / "model.keras")
    models = {"baseline": tmp_path / "model.keras", "candidates": [tmp_path / "model.keras"]}
    evaluate(**models, examples=tmp_path / "examples", evaluation=tmp_path / "e", label="image/class/label")
    report = json.loads((tmp_path / "e" / "evaluation.json").read_text())
    assert report["models"][0]["metrics"]["accuracy"]["value"] == 1


@pytest.mark.parametrize(
    ("columns", "settings", "received", "fix"),
    [
        ({}, {"pack": "image=16"}, "pack=image=16", 'pack="image=20x24x3"'),
        (
            {"other": encoded("PNG", 1, 4)[0]},
            {"pack": "image=8x8x3"},
            "encoded images in image/encoded, other",
            "files",
        ),
        ({"image": np.zeros(4)}, {"pack": "image=8x8x3"}, "besides image, label", "another name"),
        ({}, {"rename": ["imag=x"]}, "no 'imag'", "did you mean image/encoded|known"),
        ({}, {"rename": ["label=x"]}, "rename=label=x", "leave it out"),
        ({"x": np.zeros(4)}, {"rename": ["image/encoded=x"]}, "there is such a feature", "rename 'x' as well"),
        ({}, {"rename": ["x"]}, r"rename=\['x'\]", "rename="),
    ],
)
def test_refusals(tmp_path, columns, settings, received, fix):
    files, classes = encoded("JPEG", 3, 4)
    write_examples(tmp_path / "a.tfrecord", {"image/encoded": files, "label": classes, **columns})
    with pytest.raises(ComponentError, match=f"(?s){received}.*{fix}"):
        prepare_examples(data=tmp_path / "a.tfrecord", examples=tmp_path / "examples", **settings)


def test_an_image_that_is_damaged_is_an_unusable_row(tmp_path):
    files, classes = encoded("PNG", 3)
    files[5] = files[5][:40]
    write_examples(tmp_path / "a.tfrecord", {"image/encoded": files, "label": classes})
    data = {"data": tmp_path / "a.tfrecord", "pack": "image=8x8x3", "examples": tmp_path / "examples"}
    with pytest.raises(ComponentError, match="line 6: image/encoded: no image"):
        prepare_examples(**data)


def test_features_get_new_names(tmp_path):
    x, y = np.arange(40, dtype=np.float32).reshape(20, 2), np.arange(20) % 2
    np.savez(tmp_path / "a.npz", x=x, label=y)
    prepare_examples(data=tmp_path / "a.npz", examples=tmp_path / "examples", rename=["x=input_layer"])
    features = json.loads((tmp_path / "examples" / "examples.json").read_text())["features"]
    assert features["input_layer"]["shape"] == [2] and set(features) == {"input_layer", "label"}
    specs = {"input_layer": TensorSpec("float32", (None, 2)), "label": TensorSpec("int64", (None,))}
    batch = next(read_batches(Examples(tmp_path / "examples").split("train"), specs, batch_size=20))
    assert (batch["input_layer"][:, 0] / 2 % 2).tolist() == batch["label"].tolist()
