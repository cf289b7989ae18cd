"""Write models as the components do, in a process of its own: ``python -m tests.components.model_writers FOLDER …``."""

import argparse
import os
from pathlib import Path

import keras
import tensorflow as tf
import tf_keras

from tests.components.train_modules import DENSE
from tfopt import keras_models
from tfopt.artifacts import Model
from tfopt.component import find
from tfopt.components.compile_xla.saved_model import write_compiled
from tfopt.execution.object_inputs import save_model
from tfopt.graph.law_order import NORMALIZING
from tfopt.graph.law_runner import optimize
from tfopt.graph.report import Report
from tfopt.saved_models.saved_model import read, write

TRAINING = {"epochs": 1, "batch_size": 64, "seed": 3}


def main() -> None:
    """Write the models of one group; ``--used`` first changes what the process counts and the addresses of objects."""
    parser = argparse.ArgumentParser()
    parser.add_argument("group", choices=["savers", "components"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keras", choices=["keras", "tf_keras"], default="keras")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--examples", type=Path)
    parser.add_argument("--used", action="store_true")
    words = parser.parse_args()
    if words.used:
        for _ in range(5):
            tf.function(lambda value: value + 1).get_concrete_function(tf.TensorSpec([None]))
    if words.group == "savers":
        _write_all_layers(words.folder)
    else:
        _run_components(words.folder, words.keras, words.model, words.examples)


def _write_all_layers(folder: Path) -> None:
    for library in (keras, tf_keras):
        keras_models.save(model_of(library), folder / library.__name__)
    frozen = read(folder / "keras" / "Format-Serving")
    write(optimize(frozen, NORMALIZING, Report()), folder / "optimized" / "Format-Serving")
    keras_models.save(dense_model(), folder / "dense")
    write_compiled(read(folder / "dense" / "Format-Serving"), folder / "compiled" / "Format-Serving", [1])
    save_model(Doubled(), folder / "saved").path.rename(folder / "module")  # its folder has a number of the object


def model_of(library):
    """Return a model with what TensorFlow numbers: inputs captured, tables, loops, random names, shared objects."""
    library.utils.set_random_seed(3)
    layers = library.layers
    image, word = library.Input((8, 8, 3), name="image"), library.Input((1,), dtype="string", name="word")
    flow = layers.Conv2D(4, 3, use_bias=False, name="conv")(image)
    flow = layers.BatchNormalization(name="norm")(flow)
    flow = layers.GlobalAveragePooling2D(name="pool")(flow)
    shared = library.initializers.RandomNormal(seed=1)
    number = layers.StringLookup(vocabulary=["7", "100", "b"], name="lookup")(word)
    text = layers.Embedding(4, 4, embeddings_initializer=shared, name="embedding")(number)
    text = layers.GRU(3, name="gru")(layers.LSTM(4, return_sequences=True, name="lstm")(text))
    flow = layers.Dropout(0.5, name="dropout")(layers.Concatenate(name="both")([flow, text]))
    one = layers.Dense(2, kernel_initializer=shared, dtype="mixed_bfloat16", name="one")(flow)
    return library.Model([image, word], {"one": one, "two": layers.Dense(3, name="two")(flow)}, name="model")


def dense_model():
    """Return a model that XLA compiles."""
    keras.utils.set_random_seed(3)
    return keras.Sequential([keras.Input((4,), name="values"), keras.layers.Dense(3, name="dense")])


class Doubled(tf.Module):
    """A module with a table, as a user passes to a component."""

    def __init__(self):
        super().__init__()
        pairs = tf.lookup.KeyValueTensorInitializer(tf.constant([1, 2], tf.int64), tf.constant([2.0, 4.0]))
        self.table = tf.lookup.StaticHashTable(pairs, 0.0)
        self.factor = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="key")])
    def __call__(self, key):
        return {"value": self.table.lookup(key) * self.factor}


def _run_components(folder: Path, library: str, model: Path, examples: Path) -> None:
    folder.mkdir()
    module = folder / "module.py"
    module.write_text(DENSE.replace("import keras", f"import {library} as keras"))
    tuned = {"examples": examples, "module": module, **TRAINING}
    find("train")(trained=folder / "train", **tuned)
    find("fold_batch_norm")(model=model, folded=folder / "fold_batch_norm")
    find("prune")(model=model, pruned=folder / "prune", sparsity=0.6, **tuned)
    find("prune")(model=model, pruned=folder / "prune_once", sparsity=0.6)
    find("cluster")(model=model, clustered=folder / "cluster", clusters=8, **tuned)
    find("quantize")(model=model, quantized=folder / "quantize", **tuned)
    bare = Model(model).keras
    find("optimize_graph")(model=bare, optimized=folder / "optimize_graph")
    find("cast_precision")(model=bare, cast=folder / "cast_precision")
    find("quantize_graph")(model=bare, examples=examples, quantized=folder / "quantize_graph")
    find("configure_runtime")(model=bare, configured=folder / "configure_runtime")
    find("compile_xla")(model=bare, compiled=folder / "compile_xla", batch_sizes=["1"])
    find("compile_xla")(model=bare, compiled=folder / "compile_clusters", mode="clusters")
    find("export_onnx")(model=bare, exported=folder / "export_onnx", examples=examples, precision="int8")
    find("export_openvino")(model=bare, exported=folder / "export_openvino")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
