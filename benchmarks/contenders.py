"""Who is compared in peers.py: four models with random weights, what the peers make of them, and what tfopt does."""

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from graph import export

MODELS = ("MobileNetV2", "ResNet50", "EfficientNetB0", "transformer")
WORDS, LENGTH, WIDTH, BLOCKS = 1000, 64, 128, 4  # of the transformer
RECORDS = 32
# Answers of random weights to random data say nothing, so an int8 file that loses them is measured all the same.
EXPORT = {"calibration_count": RECORDS, "tolerance": 100.0}
EXPORTERS = ("export_tflite", "export_onnx", "export_openvino")


def write_model(name: str, folder: Path, side: int | None) -> None:
    """Write a backbone as graph.py does, or a small transformer encoder that classifies."""
    if name != "transformer":
        export(name, "keras", folder, side)
        return
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    ids = layers.Input((LENGTH,), dtype="int32", name="ids")
    flow = layers.Embedding(WORDS, WIDTH)(ids)
    for _ in range(BLOCKS):
        flow = layers.LayerNormalization()(flow + layers.MultiHeadAttention(4, WIDTH // 4)(flow, flow))
        wide = layers.Dense(4 * WIDTH)(flow)
        wide = layers.Activation(lambda values: keras.activations.gelu(values, approximate=True))(wide)
        flow = layers.LayerNormalization()(flow + layers.Dense(WIDTH)(wide))
    keras.Model(ids, layers.Dense(10)(layers.GlobalAveragePooling1D()(flow))).export(str(folder), verbose=False)


def write_examples(model: Path, folder: Path) -> None:
    """Write random records that fit a model's inputs, the same as both splits."""
    import tensorflow as tf

    from tfopt import runtimes
    from tfopt.artifacts import SavedModel

    with runtimes.load(SavedModel(model)) as plain:
        ((name, spec),) = plain.inputs.items()
    draw = np.random.default_rng(0)
    for split in ("train", "eval"):
        file = folder / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz"
        file.parent.mkdir(parents=True)
        with tf.io.TFRecordWriter(str(file), "GZIP") as writer:
            for _ in range(RECORDS):
                if spec.dtype == "int32":
                    ids = draw.integers(0, WORDS, LENGTH)
                    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
                else:
                    pixels = draw.random(math.prod(size or 1 for size in spec.shape[1:]), np.float32)
                    feature = tf.train.Feature(float_list=tf.train.FloatList(value=pixels))
                features = tf.train.Features(feature={name: feature})
                writer.write(tf.train.Example(features=features).SerializeToString())


def peers(folder: Path) -> dict[str, Path]:
    """What each peer makes of the SavedModel by default; one that fails is left out, and says why."""
    import tensorflow as tf

    from tfopt import runtimes
    from tfopt.artifacts import Examples, SavedModel
    from tfopt.data.batches import read_batches
    from tfopt.runtimes.openvino_import import openvino, without_telemetry

    with without_telemetry():
        import nncf

    plain, made = folder / "plain", {}

    def lite(file: Path) -> None:
        file.write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(plain)).convert())

    def onnx(file: Path) -> None:
        words = ["-m", "tf2onnx.convert", "--saved-model", str(plain), "--output", str(file)]
        subprocess.run([sys.executable, *words], check=True, capture_output=True)

    def vino(file: Path) -> None:
        openvino.save_model(openvino.convert_model(plain), file)

    def quantized(file: Path) -> None:
        with runtimes.load(SavedModel(plain)) as parent:
            feed = list(read_batches(Examples(folder / "examples").split("train"), parent.inputs, batch_size=1))
        openvino.save_model(nncf.quantize(openvino.convert_model(plain), nncf.Dataset(feed)), file)

    ways: dict[str, tuple[Callable[[Path], None], str]] = {
        "tf.lite": (lite, "lite.tflite"),
        "onnxruntime": (onnx, "onnx.onnx"),
        "openvino": (vino, "vino.xml"),
        "openvino + nncf": (quantized, "nncf.xml"),
    }
    for name, (make, file) in ways.items():
        try:
            make(folder / file)
            made[name] = folder / file
        except Exception as error:  # their exceptions share no base
            print(f"  {name} fails: {str(error).splitlines()[0][:120]}", flush=True)
    return made


def menu(folder: Path) -> dict[str, Path]:
    """What `pipelines/optimize.py` makes of it, by the names of its menu."""
    from tfopt.component import find
    from tfopt.pipelines.optimize import CANDIDATES, make_candidates

    class AtOnce:
        """Steps that run where they are written."""

        def __getattr__(self, name: str) -> Callable[..., Any]:
            component = find(name)
            (output,) = component.outputs

            def run(id: str = name, **wires: Any) -> SimpleNamespace:
                outputs = component(**wires, **(EXPORT if name in EXPORTERS else {}), **{output: folder / id})
                return SimpleNamespace(outputs=outputs)

            return run

    made: list[Any] = make_candidates(AtOnce(), folder / "plain", folder / "examples", CANDIDATES)  # type: ignore[arg-type]
    return {name: artifact.path for name, artifact in zip(CANDIDATES, made, strict=True)}
