"""A module for the standard TFX Trainer: a Keras 3 model of iris whose signature parses serialized records."""

from typing import Any

FEATURES = ["sepal_length", "sepal_width", "petal_length", "petal_width"]


def run_fn(fn_args: Any) -> None:
    """Train on the four columns of the CSV, and export with Keras's own tool, as for TensorFlow Serving."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    columns = {name: tf.io.FixedLenFeature([1], tf.float32) for name in FEATURES}
    columns["species"] = tf.io.FixedLenFeature([1], tf.int64)
    files = tf.io.gfile.glob(list(fn_args.train_files))
    records = tf.data.TFRecordDataset(files, compression_type="GZIP").shuffle(1000, seed=0).batch(32)
    parsed = records.map(lambda batch: tf.io.parse_example(batch, columns)).map(lambda row: (row, row.pop("species")))
    inputs = {name: keras.Input((1,), name=name) for name in FEATURES}
    flow = keras.layers.Dense(16, use_bias=False)(keras.layers.Concatenate()(list(inputs.values())))
    flow = keras.layers.ReLU()(keras.layers.BatchNormalization(momentum=0.8)(flow))
    model = keras.Model(inputs, keras.layers.Dense(3, activation="softmax", name="species")(flow))
    model.compile(keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy")
    model.fit(parsed, epochs=30, verbose=0)
    served = {name: columns[name] for name in FEATURES}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(examples: Any) -> dict[str, Any]:
        return {"species": model(tf.io.parse_example(examples, served))}

    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serving_default", serve)
    archive.write_out(fn_args.serving_model_dir, verbose=False)
