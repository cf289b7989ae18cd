"""Models as other tools write them: signatures of serialized records, and inputs of text."""

from pathlib import Path
from typing import Any

import numpy as np

WORDS = ("the", "cat", "sat", "on", "mat", "a", "dog", "ate", "my")
COUNT = 96  # records of each split


def write_examples(folder: Path) -> Path:
    """Write splits train and eval with numbers, text, a JPEG image and a label."""
    import tensorflow as tf

    draw = np.random.default_rng(0)
    for split in ("train", "eval"):
        (folder / f"Split-{split}").mkdir(parents=True)
        with tf.io.TFRecordWriter(str(folder / f"Split-{split}" / "data_tfrecord-00000-of-00001")) as writer:
            for _ in range(COUNT):
                writer.write(record(draw))
    return folder


def record(draw: np.random.Generator) -> bytes:
    """Return a serialized tf.Example; ``sometimes`` is missing in every other one, on average."""
    import tensorflow as tf

    label = int(draw.integers(0, 3))
    image = draw.integers(0, 80, (10, 12, 3)).astype(np.uint8)
    image[..., label] += 100
    features = {name: _floats([draw.normal() + label]) for name in ("a", "b")}
    features["label"], features["two"] = _integers([label]), _integers([label % 2])
    features["text"] = _bytes(" ".join(draw.choice(WORDS, draw.integers(1, 8))).encode())
    features["jpeg"] = _bytes(tf.io.encode_jpeg(image).numpy())
    features["n"] = _integers(draw.integers(0, 4, 2))
    if draw.integers(0, 2):
        features["sometimes"] = _integers(draw.integers(0, 4, 2))
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def save_parsing_model(folder: Path, *, keras_2: bool, default: bool = False, scale: float = 1.0) -> Any:
    """Save a Keras model as TFX's trainers do, ``serving_default(examples: string)``, and return it.

    Args:
        folder: The folder of the SavedModel.
        keras_2: True for a tf_keras model saved with ``save(signatures=…)``, False for Keras 3's ExportArchive.
        default: True to parse the input ``n`` from the feature ``sometimes``, with a default value.
        scale: Factor of the feature ``a`` between the parsing and the model.
    """
    import keras
    import tensorflow as tf
    import tf_keras

    library = tf_keras if keras_2 else keras
    inputs = {name: library.Input((1,), name=name) for name in ("a", "b")}
    inputs["n"] = library.Input((2,), name="n", dtype="int64")
    embedded = library.layers.Flatten()(library.layers.Embedding(4, 3)(inputs["n"]))
    hidden = library.layers.Concatenate()([inputs["a"], inputs["b"], embedded])
    hidden = library.layers.BatchNormalization()(library.layers.Dense(24, use_bias=False)(hidden))
    hidden = library.layers.ReLU()(hidden)
    model = library.Model(inputs, library.layers.Dense(3, activation="softmax", name="probabilities")(hidden))
    draw = np.random.default_rng(7)
    model.set_weights([draw.random(weight.shape) + 0.1 for weight in model.get_weights()])
    spec = {name: tf.io.FixedLenFeature([1], tf.float32) for name in ("a", "b")}
    stored = "sometimes" if default else "n"
    spec[stored] = tf.io.FixedLenFeature([2], tf.int64, default_value=[3, 1] if default else None)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(examples: Any) -> dict[str, Any]:
        parsed = tf.io.parse_example(examples, spec)
        number = parsed["a"] if scale == 1.0 else parsed["a"] * scale
        return {"outputs": model({"a": number, "b": parsed["b"], "n": parsed[stored]})}

    if keras_2:
        model.save(folder, save_format="tf", signatures={"serving_default": serve})
    else:
        export(model, serve, folder)
    return model


def save_image_model(folder: Path) -> None:
    """Save a Keras 3 model whose signature parses records and decodes JPEG images."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(5)
    image = keras.Input((8, 8, 3), name="image")
    hidden = keras.layers.BatchNormalization()(keras.layers.Conv2D(4, 3, use_bias=False)(image))
    hidden = keras.layers.GlobalAveragePooling2D()(keras.layers.ReLU()(hidden))
    model = keras.Model(image, keras.layers.Dense(3, activation="softmax")(hidden))

    def decode(content: Any) -> Any:
        return tf.image.resize(tf.io.decode_jpeg(content, channels=3), (8, 8)) / 255.0

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(examples: Any) -> dict[str, Any]:
        parsed = tf.io.parse_example(examples, {"jpeg": tf.io.FixedLenFeature([], tf.string)})
        return {"outputs": model(tf.map_fn(decode, parsed["jpeg"], fn_output_signature=tf.float32))}

    export(model, serve, folder)


def save_text_model(folder: Path) -> None:
    """Save a Keras 3 model with a TextVectorization layer, by Keras's own ``export``."""
    import keras

    keras.utils.set_random_seed(5)
    vectorize = keras.layers.TextVectorization(max_tokens=16, output_sequence_length=6)
    vectorize.adapt([" ".join(WORDS)])
    text = keras.Input((), dtype="string", name="text")
    hidden = keras.layers.Embedding(16, 8, embeddings_initializer="random_normal")(vectorize(text))
    hidden = keras.layers.GlobalAveragePooling1D()(hidden)
    keras.Model(text, keras.layers.Dense(2, name="scores")(hidden)).export(folder, verbose=False)


def save_estimator_model(folder: Path) -> None:
    """Save a model of TensorFlow 1 as an Estimator exports it: ParseExample, a lookup table, a sparse feature."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        records = v1.placeholder(tf.string, [None], name="input_example_tensor")
        numbers = {name: v1.io.FixedLenFeature([1], tf.float32) for name in ("a", "b")}
        parsed = v1.io.parse_example(records, {**numbers, "text": v1.io.VarLenFeature(tf.string)})
        words = tf.lookup.KeyValueTensorInitializer(list(WORDS), tf.range(1, len(WORDS) + 1, dtype=tf.int64))
        numbered = tf.lookup.StaticHashTable(words, 0).lookup(tf.sparse.to_dense(parsed["text"], default_value=""))
        kernel = v1.get_variable("kernel", [2, 3], initializer=v1.random_normal_initializer(seed=1))
        table = v1.get_variable("table", [len(WORDS) + 1, 3], initializer=v1.random_normal_initializer(seed=2))
        logits = tf.matmul(tf.concat([parsed["a"], parsed["b"]], 1), kernel)
        scores = tf.nn.softmax(logits + tf.reduce_mean(tf.gather(table, numbered), 1))
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        tables = v1.tables_initializer()
        v1.saved_model.simple_save(session, str(folder), {"examples": records}, {"scores": scores}, tables)


def export(model: Any, serve: Any, folder: Path) -> None:
    """Export a Keras 3 model with a function as its ``serving_default``."""
    import keras

    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serving_default", serve)
    archive.write_out(folder, verbose=False)


def _floats(values: Any) -> Any:
    import tensorflow as tf

    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def _integers(values: Any) -> Any:
    import tensorflow as tf

    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def _bytes(value: bytes) -> Any:
    import tensorflow as tf

    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
