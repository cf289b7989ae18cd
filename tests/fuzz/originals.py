"""Write small real inputs of every format into a folder, the originals that `tests.fuzz.cases` damages."""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.conftest import write_examples
from tests.reports import DIGITS, make_models, write_reports

ROWS = 24


def write_originals(folder: Path) -> None:
    """Write all originals."""
    for write in (_write_models, _write_exports, _write_data, _write_reports, _write_version, _write_run):
        write(folder)


def _write_models(folder: Path) -> None:
    import keras
    import tensorflow as tf
    import tf_keras

    from tfopt import keras_models
    from tfopt.saved_models import graph_file, saved_model

    keras.utils.set_random_seed(0)
    model = _model(keras)
    keras_models.save(model, folder / "model")
    model.save(folder / "model.keras")
    model.save(folder / "model.h5")
    old = _model(tf_keras)
    old.save(folder / "keras2.h5")
    old.save(folder / "keras2", save_format="tf")
    shutil.copytree(folder / "model" / "Format-Serving", folder / "saved_model")
    frozen = saved_model.read(folder / "saved_model")
    graph_file.write_graph(frozen, folder / "frozen.pb")
    saved_model.write(frozen, folder / "flat")
    [signature] = frozen.signatures.values()
    ends = {"inputs": [end.tensor for end in signature.inputs.values()]}
    (folder / "ends.json").write_text(
        json.dumps(ends | {"outputs": [end.tensor for end in signature.outputs.values()]})
    )
    words = folder / "words.txt"
    words.write_text("red\ngreen\nblue\n")
    lookup = tf.Module()
    lines = tf.lookup.TextFileInitializer(
        str(words), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
    )
    lookup.table = tf.lookup.StaticHashTable(lines, default_value=-1)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])  # type: ignore[untyped-decorator]
    def serve(word):
        return {"index": tf.cast(lookup.table.lookup(word), tf.float32) * 2}

    tf.saved_model.save(lookup, str(folder / "lookup"), signatures=serve)


def _model(keras):
    image = keras.Input((4, 4, 1), name="image")
    flow = keras.layers.Conv2D(3, 3, use_bias=False, name="conv")(image)
    flow = keras.layers.ReLU()(keras.layers.BatchNormalization(name="norm")(flow))
    flow = keras.layers.Flatten()(flow)
    return keras.Model(image, keras.layers.Dense(3, activation="softmax", name="digit")(flow), name="small")


def _write_exports(folder: Path) -> None:
    import onnx
    import openvino
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder / "saved_model"))
    (folder / "model.tflite").write_bytes(converter.convert())
    draw = np.random.default_rng(0)
    weights = onnx.numpy_helper.from_array(draw.normal(size=(16, 3)).astype(np.float32), "weights")
    nodes = [
        onnx.helper.make_node("Flatten", ["image"], ["flat"]),
        onnx.helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
        onnx.helper.make_node("Softmax", ["logits"], ["digit"]),
    ]
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("image", ["n", 4, 4, 1]), ("digit", ["n", 3]))
    ]
    graph = onnx.helper.make_graph(nodes, "small", ends[:1], ends[1:], [weights])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 15)], ir_version=8)
    for name in ("onnx", "external", "openvino"):
        (folder / name).mkdir()
    onnx.save(proto, folder / "onnx" / "model.onnx")
    openvino.save_model(openvino.convert_model(folder / "onnx" / "model.onnx"), folder / "openvino" / "model.xml")
    external = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 16}
    onnx.save_model(proto, folder / "external" / "model.onnx", **external)


def _write_data(folder: Path) -> None:
    import pandas

    draw = np.random.default_rng(0)
    images, labels = draw.random((ROWS, 16)).astype(np.float32), np.arange(ROWS) % 3
    columns = {"image": images, "label": labels}
    for split in ("train", "eval"):
        write_examples(folder / "examples" / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz", columns)
        write_examples(folder / "plain" / f"Split-{split}" / "data_tfrecord-00000-of-00001", columns)
    manifest = {
        "schema_version": 1,
        "splits": {"train": ROWS, "eval": ROWS},
        "features": {
            "image": {"dtype": "float32", "shape": [16], "missing": 0, "min": 0.0, "max": 1.0, "mean": 0.5, "std": 0.3},
            "label": {"dtype": "int64", "shape": [1], "missing": 0, "min": 0, "max": 2, "mean": 1.0, "std": 0.8},
        },
        "label": "label",
        "label_counts": {"train": {"0": 8, "1": 8, "2": 8}, "eval": {"0": 8, "1": 8, "2": 8}},
        "classes": ["zero", "one", "two"],
        "read": 2 * ROWS,
        "rejected": {"count": 0, "shown": []},
        "seed": 0,
    }
    for name in ("examples", "plain"):
        (folder / name / "examples.json").write_text(json.dumps(manifest))
    data = folder / "data"
    data.mkdir()
    table = pandas.DataFrame({"a": images[:, 0], "b": [f"word {n}" for n in labels], "label": labels})
    table.to_csv(data / "table.csv", index=False)
    table.to_csv(data / "table.tsv", index=False, sep="\t")
    table.to_json(data / "table.jsonl", orient="records", lines=True)
    table.to_parquet(data / "table.parquet")
    np.savez(data / "arrays.npz", image=images, label=labels)
    write_examples(data / "rows.tfrecord", columns)
    write_examples(data / "rows.tfrecord.gz", columns)
    (folder / "module.py").write_text(MODULE)


def _write_reports(folder: Path) -> None:
    from tests.components.test_profile_training import plan_report
    from tfopt.artifacts import TrainingPlan
    from tfopt.components.select_model.component import select_model

    models = make_models(DIGITS[:3], folder / "rows")
    evaluation, benchmark = write_reports(DIGITS[:3], models, folder)
    select_model(
        baseline=models[0], candidates=models[1:], evaluation=evaluation, benchmark=benchmark,
        selected=folder / "selected", decision=folder / "decision", blessing=folder / "blessing",
    )  # fmt: skip
    TrainingPlan(folder / "plan").write(plan_report())


def _write_version(folder: Path) -> None:
    """Push a signed version to ``served``."""
    from tests.components.test_push_model import push
    from tests.components.test_push_model_manifest import write_keys

    with tempfile.TemporaryDirectory() as scratch:
        model = shutil.copy(folder / "model.tflite", scratch)
        key, public = write_keys(Path(scratch, "keys"))
        push(Path(model), folder / "served", signing_key=str(key))
        shutil.copy(public, folder / "public.pem")


def _write_run(folder: Path) -> None:
    """Run a pipeline of one step, among whose results the user has a file."""
    from tfopt.cli.main import main

    job = folder / "job"
    job.mkdir()
    (job / "counting.py").write_text(PIPELINE)
    (job / "data.txt").write_text("one\n")
    (job / "run.yaml").write_text("pipeline: counting.py\nroot: runs/a\nengine: process\nvalues:\n  data: data.txt\n")
    if main(["run", "-f", str(job / "run.yaml")]):
        raise RuntimeError("the run failed")
    own = job / "runs" / "a" / "artifacts" / "x" / "y" / "own.txt"
    own.parent.mkdir(parents=True)
    own.write_text("mine")


PIPELINE = """
from tests.toys import count
from tfopt import Input, Steps
from tfopt.artifacts import Files
from tfopt.trace import Inherited


def counting(steps: Steps, data: Input[Files], *, limit: Inherited) -> None:
    '''Count.'''
    steps(count, data=data, limit=limit)
"""
MODULE = """
import keras


def build_model():
    image = keras.Input((16,), name="image")
    model = keras.Model(image, keras.layers.Dense(3, activation="softmax")(image))
    model.compile("adam", "sparse_categorical_crossentropy")
    return model
"""

if __name__ == "__main__":
    write_originals(Path(sys.argv[1]))
