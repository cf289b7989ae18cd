"""Networks of other tools through each component that takes a model: the largest difference in the file's own runtime.

    pip install --no-deps --target PACKAGES keras-hub keras-tcn tensorflow-recommenders transformers==4.46.3
    pip install --no-deps --target PACKAGES tokenizers==0.20.3 huggingface-hub==0.26.5 safetensors regex filelock
    PYTHONPATH=PACKAGES python benchmarks/networks.py [--networks U-Net Whisper …] [--json F]

Each network is small, has random weights, is trained for a few steps if its tool trains it, and is saved as that tool
saves it. The tool itself computes the expected outputs of 48 records. Every component then gets the saved model and
the records, and the file that it writes is read by its own runtime, without tfopt: TensorFlow, LiteRT, ONNX Runtime,
OpenVINO. A cell is the largest difference to the expected outputs, as a share of their range, or a refusal. A network
whose package is not installed is left out. Each works in a process of its own.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from data_sets import write_split
from numpy.typing import NDArray
from stored_results import load_results, save_results

Arrays = dict[str, NDArray[Any]]
RECORDS, EVALUATED = 48, 12
COMPONENTS: dict[str, tuple[str, str, dict[str, str]]] = {  # column: component, its output, parameters
    "fold": ("fold_batch_norm", "folded", {}),
    "optimize": ("optimize_graph", "optimized", {}),
    "float16": ("cast_precision", "cast", {}),
    "XLA": ("compile_xla", "compiled", {}),
    "int8 graph": ("quantize_graph", "quantized", {}),
    "LiteRT": ("export_tflite", "exported", {"precision": "float32"}),
    "LiteRT int8": ("export_tflite", "exported", {"precision": "int8"}),
    "ONNX": ("export_onnx", "exported", {"precision": "float32"}),
    "ONNX int8": ("export_onnx", "exported", {"precision": "int8"}),
    "OpenVINO": ("export_openvino", "exported", {"precision": "float32"}),
    "OpenVINO int8": ("export_openvino", "exported", {"precision": "int8"}),
}


@dataclass
class Case:
    """A saved model, records for it, and the outputs that the tool itself computes."""

    source: Path
    inputs: Arrays
    outputs: Arrays


@dataclass
class Network:
    """The tool of a network, and the function that makes it."""

    tool: str
    make: Callable[[Path], Case]
    keras: int = 3  # 2 if the tool needs tf_keras as ``tf.keras``


@dataclass
class Row:
    """The result of a network: a largest difference or a refusal for each component."""

    network: str
    tool: str
    differences: dict[str, float] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)


NETWORKS: dict[str, Network] = {}


def network(name: str, tool: str, keras: int = 3) -> Callable[[Callable[[Path], Case]], Callable[[Path], Case]]:
    """Add a function that makes a network to the table."""

    def add(make: Callable[[Path], Case]) -> Callable[[Path], Case]:
        NETWORKS[name] = Network(tool, make, keras)
        return make

    return add


def images(side: int, channels: int = 3) -> NDArray[Any]:
    """Return smooth random images of values from 0 to 255, float32 [records, side, side, channels]."""
    rng = np.random.default_rng(0)
    coarse = rng.uniform(0, 255, (RECORDS, side // 8, side // 8, channels))
    return np.clip(coarse.repeat(8, 1).repeat(8, 2) + rng.normal(0, 8, (RECORDS, side, side, channels)), 0, 255).astype(
        "float32"
    )


def train(model: Any, inputs: Any, classes: int) -> None:
    """Train for a few steps, so that weights and batch norms have no initial values."""
    import tensorflow as tf

    loss = tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True
    )  # of tf_keras if `TF_USE_LEGACY_KERAS` is set
    model.compile("adam", loss)
    labels = np.arange(RECORDS) % classes
    model.fit(inputs, labels, epochs=3, batch_size=16, verbose=0)


def saved_by_keras(model: Any, inputs: Any, path: Path) -> Case:
    """Save a model of either Keras as a file, or export it as a SavedModel, and let it predict."""
    if path.suffix:
        model.save(path)
    else:
        model.export(path)
    named = inputs if isinstance(inputs, Mapping) else {model.inputs[0].name.split(":")[0]: inputs}
    predicted = model.predict(inputs, verbose=0)
    if not isinstance(predicted, Mapping):
        predicted = {
            str(number): value for number, value in enumerate(predicted if isinstance(predicted, list) else [predicted])
        }
    return Case(path, dict(named), predicted)


@network("MobileNetV3Small", "Keras Applications, .keras")
def _mobile_net(folder: Path) -> Case:
    import keras

    model = keras.applications.MobileNetV3Small((96, 96, 3), weights=None, classes=10, classifier_activation=None)
    train(model, images(96), 10)
    return saved_by_keras(model, images(96), folder / "model.keras")


@network("EfficientNetB0", "Keras Applications, SavedModel by export")
def _efficient_net(folder: Path) -> Case:
    import keras

    model = keras.applications.EfficientNetB0(
        input_shape=(64, 64, 3), weights=None, classes=10, classifier_activation=None
    )
    train(model, images(64), 10)
    return saved_by_keras(model, images(64), folder / "model")


@network("ConvNeXt", "Keras Applications' builder with 4 blocks, .keras")
def _conv_next(folder: Path) -> Case:
    import keras
    from keras.src.applications.convnext import ConvNeXt

    model = ConvNeXt([1, 1, 1, 1], [16, 32, 64, 128], input_shape=(64, 64, 3), weights=None, classes=10,
                     classifier_activation=None, weights_name="", name="convnext")  # fmt: skip
    assert isinstance(model, keras.Model)
    train(model, images(64), 10)
    return saved_by_keras(model, images(64), folder / "model.keras")


@network("ResNet50V2", "tf_keras, .h5", keras=2)
def _resnet(folder: Path) -> Case:
    import tf_keras

    model = tf_keras.applications.ResNet50V2(
        input_shape=(64, 64, 3), weights=None, classes=10, classifier_activation=None
    )
    train(model, images(64), 10)
    return saved_by_keras(model, images(64), folder / "model.h5")


@network("temporal convolutions", "keras-tcn, SavedModel by export")
def _tcn(folder: Path) -> Case:
    import keras
    from tcn import TCN

    inputs = keras.Input((40, 4), name="series")
    model = keras.Model(inputs, keras.layers.Dense(3)(TCN(16, dilations=(1, 2, 4, 8), use_batch_norm=True)(inputs)))
    series = np.cumsum(np.random.default_rng(0).normal(size=(RECORDS, 40, 4)), 1).astype("float32") / 5
    train(model, series, 3)
    return saved_by_keras(model, series, folder / "model")


def tokens(length: int, vocabulary: int) -> Arrays:
    """Return token numbers with masks of different lengths, int32 [records, length]."""
    rng = np.random.default_rng(0)
    mask = (np.arange(length) < rng.integers(length // 2, length + 1, (RECORDS, 1))).astype("int32")
    return {"token_ids": rng.integers(1, vocabulary, (RECORDS, length)).astype("int32") * mask, "padding_mask": mask}


@network("BERT classifier", "KerasHub, SavedModel by export")
def _bert(folder: Path) -> Case:
    import keras_hub

    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=500, num_layers=2, num_heads=2, hidden_dim=64, intermediate_dim=128, max_sequence_length=32
    )
    model = keras_hub.models.BertTextClassifier(backbone, num_classes=3)
    inputs = {**tokens(32, 500), "segment_ids": np.zeros((RECORDS, 32), "int32")}
    train(model, inputs, 3)
    return saved_by_keras(model, inputs, folder / "model")


@network("Whisper", "KerasHub: encoder and decoder, SavedModel by export")
def _whisper(folder: Path) -> Case:
    import keras_hub

    model = keras_hub.models.WhisperBackbone(
        vocabulary_size=400, num_layers=2, num_heads=2, hidden_dim=64, intermediate_dim=128,
        num_mels=20, max_encoder_sequence_length=120, max_decoder_sequence_length=16,
    )  # fmt: skip
    words = tokens(16, 400)
    sound = np.random.default_rng(1).normal(size=(RECORDS, 120, 20)).astype("float32")
    inputs = {
        "encoder_features": sound,
        "decoder_token_ids": words["token_ids"],
        "decoder_padding_mask": words["padding_mask"],
    }
    return saved_by_keras(model, inputs, folder / "model")


@network("detector RetinaNet", "KerasHub's backbone and heads, SavedModel by export")
def _detector(folder: Path) -> Case:
    import keras
    import keras_hub

    encoder = keras_hub.models.ResNetBackbone(
        input_conv_filters=[64], input_conv_kernel_sizes=[7], stackwise_num_filters=[64, 64, 64, 64],
        stackwise_num_blocks=[1, 1, 1, 1], stackwise_num_strides=[1, 2, 2, 2], block_type="basic_block",
        use_pre_activation=False, image_shape=(128, 128, 3),
    )  # fmt: skip
    pyramid = keras_hub.models.RetinaNetBackbone(
        image_encoder=encoder, min_level=3, max_level=5, image_shape=(128, 128, 3), use_p5=True
    )
    levels = pyramid.output
    box, score = keras.layers.Conv2D(36, 3, padding="same"), keras.layers.Conv2D(27, 3, padding="same")
    flat = {name: keras.layers.Concatenate(1, name=name)([
        keras.layers.Reshape((-1, width))(head(levels[level])) for level in sorted(levels)
    ]) for name, head, width in (("boxes", box, 4), ("scores", score, 3))}  # fmt: skip
    model = keras.Model(pyramid.input, flat)
    return saved_by_keras(model, images(128) / 255, folder / "model")


@network("DistilBERT", "transformers 4 with tf_keras, save_pretrained as a SavedModel", keras=2)
def _distil_bert(folder: Path) -> Case:
    import tensorflow as tf
    from transformers import DistilBertConfig, TFDistilBertForSequenceClassification

    model = TFDistilBertForSequenceClassification(
        DistilBertConfig(vocab_size=500, dim=64, hidden_dim=128, n_layers=2, n_heads=2, max_position_embeddings=32)
    )
    words = tokens(32, 500)
    inputs = {"input_ids": words["token_ids"], "attention_mask": words["padding_mask"]}
    logits = model({name: tf.constant(values) for name, values in inputs.items()}).logits
    model.save_pretrained(folder, saved_model=True)
    return Case(folder / "saved_model" / "1", inputs, {"logits": logits.numpy()})


@network("ranking with cross layers", "TensorFlow Recommenders, SavedModel by tf_keras", keras=2)
def _ranking(folder: Path) -> Case:
    import tensorflow as tf
    import tensorflow_recommenders as recommenders

    rng = np.random.default_rng(0)
    inputs = {"user": rng.integers(0, 50, (RECORDS, 1)), "item": rng.integers(0, 80, (RECORDS, 1)),
              "price": rng.lognormal(1, 1, (RECORDS, 1)).astype("float32")}  # fmt: skip
    named = {name: tf.keras.Input((1,), name=name, dtype=values.dtype.name) for name, values in inputs.items()}
    parts = [tf.keras.layers.Flatten()(tf.keras.layers.Embedding(size, 8)(named[name]))
             for name, size in (("user", 50), ("item", 80))]  # fmt: skip
    joined = tf.keras.layers.Concatenate()([*parts, named["price"]])
    crossed = recommenders.layers.dcn.Cross(projection_dim=6)(joined)
    model = tf.keras.Model(named, tf.keras.layers.Dense(1, name="score")(tf.keras.layers.Dense(16, "relu")(crossed)))
    model.compile("adam", "mse")
    model.fit(inputs, rng.normal(size=RECORDS), epochs=5, verbose=0)
    model.save(folder / "model")
    return Case(folder / "model", inputs, {"score": model.predict(inputs, verbose=0)})


@network("wide and deep", "TensorFlow 1: feature columns by hand, tf.compat.v1 SavedModelBuilder")
def _estimator(folder: Path) -> Case:
    import tensorflow as tf

    v1 = tf.compat.v1
    rng = np.random.default_rng(0)
    inputs = {"age": rng.normal(40, 12, (RECORDS, 1)).astype("float32"), "city": rng.integers(0, 20, (RECORDS, 1))}
    with tf.Graph().as_default(), v1.Session() as session:
        age, city = v1.placeholder(tf.float32, [None, 1]), v1.placeholder(tf.int64, [None, 1])
        wide = tf.gather(v1.get_variable("wide", [20, 1], initializer=v1.random_normal_initializer(seed=1)), city[:, 0])
        bucket = tf.one_hot(tf.searchsorted(tf.constant([20.0, 30, 40, 50]), age[:, 0]), 5)
        table = v1.get_variable("embedding", [20, 6], initializer=v1.random_normal_initializer(seed=2))
        hidden = tf.concat([(age - 40) / 12, bucket, tf.gather(table, city[:, 0])], 1)
        for number, width in enumerate((16, 8)):
            kernel = v1.get_variable(
                f"k{number}", [hidden.shape[1], width], initializer=v1.glorot_uniform_initializer(3)
            )
            scale = v1.get_variable(f"s{number}", [width], initializer=v1.random_uniform_initializer(0.5, 1.5, 5))
            hidden = tf.nn.relu(tf.nn.batch_normalization(hidden @ kernel, 0.1, 1.3, 0.0, scale, 1e-3))
        last = v1.get_variable("last", [8, 1], initializer=v1.glorot_uniform_initializer(4))
        logits = tf.identity(hidden @ last + wide, "logits")
        session.run(v1.global_variables_initializer())
        feed = {age: inputs["age"], city: inputs["city"]}
        outputs = {"logits": session.run(logits, feed)}
        builder = v1.saved_model.Builder(str(folder / "model"))
        signature = v1.saved_model.predict_signature_def({"age": age, "city": city}, {"logits": logits})
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()
    return Case(folder / "model", inputs, outputs)


@network("text embedding", "hub-style tf.Module with a hash table and two signatures")
def _hub(folder: Path) -> Case:
    import tensorflow as tf

    words = [f"word{number}" for number in range(60)]

    class Embedding(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            keys = tf.lookup.KeyValueTensorInitializer(words, range(len(words)), value_dtype=tf.int64)
            self.table = tf.lookup.StaticVocabularyTable(keys, 4)
            self.vectors = tf.Variable(np.random.default_rng(0).normal(size=(64, 16)), dtype=tf.float32)
            sentences = [tf.TensorSpec([None], tf.string, "sentences")]
            self.embed = tf.function(self.embed_words, input_signature=sentences)
            self.count = tf.function(self.count_words, input_signature=sentences)

        def embed_words(self, sentences: Any) -> Any:
            parts = tf.strings.split(tf.strings.lower(sentences))
            rows = tf.gather(self.vectors, self.table.lookup(parts.flat_values))
            sums = tf.math.segment_sum(rows, parts.value_rowids())
            return {"embedding": sums / tf.sqrt(tf.cast(parts.row_lengths(), tf.float32))[:, tf.newaxis]}

        def count_words(self, sentences: Any) -> Any:
            return {"words": tf.strings.split(sentences).row_lengths()}

    module, rng = Embedding(), np.random.default_rng(1)
    sentences = np.array([" ".join(rng.choice([*words, "Unknown"], rng.integers(2, 9))) for _ in range(RECORDS)])
    signatures = {"serving_default": module.embed, "count": module.count}
    tf.saved_model.save(module, str(folder / "model"), signatures=signatures)
    inputs = {"sentences": sentences.astype("S")}
    return Case(
        folder / "model", inputs, {"embedding": module.embed(tf.constant(inputs["sentences"]))["embedding"].numpy()}
    )


@network("segmenter U-Net", "Keras 3, functional, .h5")
def _unet(folder: Path) -> Case:
    import keras
    from keras import layers

    def block(x: Any, width: int) -> Any:
        return layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(width, 3, padding="same", use_bias=False)(x)))

    inputs = keras.Input((64, 64, 3), name="image")
    high = block(inputs, 8)
    low = block(layers.MaxPooling2D()(high), 16)
    deep = block(layers.MaxPooling2D()(low), 32)
    up = block(layers.Concatenate()([layers.UpSampling2D(interpolation="bilinear")(deep), low]), 16)
    last = block(layers.Concatenate()([layers.Conv2DTranspose(8, 2, 2)(up), high]), 8)
    model = keras.Model(inputs, layers.Conv2D(3, 1, name="mask")(last))
    model.compile("adam", "mse")
    model.fit(images(64) / 255, images(64) / 255, epochs=2, batch_size=16, verbose=0)
    return saved_by_keras(model, images(64) / 255, folder / "model.h5")


def write_examples(folder: Path, inputs: Arrays) -> Path:
    """Write the last records as split eval, the others as train."""
    for split, rows in (("train", slice(RECORDS - EVALUATED)), ("eval", slice(RECORDS - EVALUATED, RECORDS))):
        write_split(folder, split, {name: values[rows] for name, values in inputs.items()})
    return folder


def find(inputs: Arrays, name: str) -> NDArray[Any]:
    """Return the records of an input. Keras names the only one in memory and in a file differently."""
    return inputs[name] if name in inputs or len(inputs) > 1 else next(iter(inputs.values()))


def run_file(folder: Path, inputs: Arrays) -> Arrays:
    """Compute the outputs of what a component wrote, in the runtime of its format."""
    serving = folder / "Format-Serving"
    if (serving / "Format-Preprocessing").exists():  # text and tables, which stay in TensorFlow
        inputs = inputs | _run_tensorflow(serving / "Format-Preprocessing", inputs)
    if (serving / "tflite").exists():
        return _run_litert(serving / "tflite", inputs)
    if (serving / "model.onnx").exists():
        return _run_onnx(serving / "model.onnx", inputs)
    if (serving / "model.xml").exists():
        return _run_openvino(serving / "model.xml", inputs)
    return _run_tensorflow(serving, inputs)


def _run_tensorflow(folder: Path, inputs: Arrays) -> Arrays:
    import tensorflow as tf

    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    specs = signature.structured_input_signature[1]
    results = signature(**{name: tf.constant(find(inputs, name), spec.dtype) for name, spec in specs.items()})
    return {name: value.numpy() for name, value in results.items()}


def _run_litert(file: Path, inputs: Arrays) -> Arrays:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(file))
    runner = interpreter.get_signature_runner("serving_default")
    details = runner.get_input_details()
    fixed = all(detail["shape_signature"][0] == 1 for detail in details.values())
    parts: list[Arrays] = []
    for rows in [[number] for number in range(RECORDS)] if fixed else [[*range(RECORDS)]]:
        feeds = {name: find(inputs, name)[rows].astype(detail["dtype"]) for name, detail in details.items()}
        parts.append({name: value.copy() for name, value in runner(**feeds).items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _run_onnx(file: Path, inputs: Arrays) -> Arrays:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    types: dict[str, Any] = {"tensor(int32)": "int32", "tensor(int64)": "int64", "tensor(string)": object}
    feeds = {end.name: find(inputs, end.name).astype(types.get(end.type, "float32")) for end in session.get_inputs()}
    return dict(zip([end.name for end in session.get_outputs()], session.run(None, feeds), strict=True))


def _run_openvino(file: Path, inputs: Arrays) -> Arrays:
    import openvino

    compiled = openvino.Core().compile_model(str(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    feeds = {end.any_name: find(inputs, end.any_name).astype(end.element_type.to_dtype()) for end in compiled.inputs}
    results = compiled(feeds)
    return {end.any_name: results[end] for end in compiled.outputs}


def largest_difference(expected: Arrays, measured: Arrays) -> float:
    """Return the largest difference of all outputs, each as a share of the range of its expected values."""
    if set(expected) != set(measured):  # Keras names outputs of files by number
        measured = dict(zip(expected, [measured[name] for name in sorted(measured)], strict=True))
    return max(
        float(np.abs(values - measured[name].reshape(values.shape)).max() / np.ptp(values))
        for name, values in expected.items()
    )


def measure(name: str, folder: Path) -> Row:
    """Make a network and give it to every component."""
    import importlib

    from tfopt.errors import ComponentError

    (folder / "source").mkdir()
    row, case = Row(name, NETWORKS[name].tool), NETWORKS[name].make(folder / "source")
    examples = write_examples(folder / "examples", case.inputs)
    for column, (component, output, parameters) in COMPONENTS.items():
        target = folder / column.replace(" ", "_")
        function = getattr(importlib.import_module(f"tfopt.components.{component}.component"), component)
        try:
            function(str(case.source), **{output: str(target)}, examples=str(examples), **parameters)
            row.differences[column] = largest_difference(case.outputs, run_file(target, case.inputs))
        except ComponentError as error:
            row.refusals[column] = error.received
        print(f"{name}, {column}: {row.differences.get(column, row.refusals.get(column))}", file=sys.stderr, flush=True)
    return row


def describe(rows: list[Row]) -> Iterator[str]:
    """Yield the lines of a Markdown table, and the refusals below it."""
    yield "| network | tool | " + " | ".join(COMPONENTS) + " |"
    yield "|---" * (len(COMPONENTS) + 2) + "|"
    reasons: list[str] = []
    for row in rows:
        cells = []
        for column in COMPONENTS:
            if column in row.differences:
                cells.append(f"{row.differences[column]:.1g}")
            elif column in row.refusals:
                reason = row.refusals[column]
                reasons += [] if reason in reasons else [reason]
                cells.append(f"refused ({reasons.index(reason) + 1})")
            else:
                cells.append("-")
        yield f"| {row.network} | {row.tool} | " + " | ".join(cells) + " |"
    yield ""
    for number, reason in enumerate(reasons, 1):
        yield f"{number}. " + " ".join(reason.split())


def main() -> None:
    """Measure each network in a process of its own and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=[*NETWORKS], default=[*NETWORKS])
    parser.add_argument("--json", type=Path, help="results; networks in it are not measured again")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)  # the child's folder
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(asdict(measure(arguments.networks[0], arguments.one))))
        return
    result = load_results(arguments.json, {"records": RECORDS}, "networks")
    rows = [Row(**row) for row in result["networks"]]
    for name in [name for name in arguments.networks if name not in {row.network for row in rows}]:
        with tempfile.TemporaryDirectory(prefix="tfopt-bench-") as folder:
            legacy = {"TF_USE_LEGACY_KERAS": "1"} if NETWORKS[name].keras == 2 else {}
            command = [sys.executable, __file__, "--networks", name, "--one", folder]
            child = subprocess.run(command, env={**os.environ, **legacy}, stdout=subprocess.PIPE, text=True)
        if child.returncode:
            print(f"{name}: not measured", file=sys.stderr)
            continue
        rows.append(Row(**json.loads(child.stdout.splitlines()[-1])))
        result["networks"].append(asdict(rows[-1]))
        save_results(arguments.json, result)
    print("\n".join(describe(rows)))


if __name__ == "__main__":
    main()
