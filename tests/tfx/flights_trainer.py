"""User code of a TFX pipeline for flights, as TFX's tutorials write it: a preprocessing_fn and a run_fn.

The exported signature takes serialized tf.Example records, parses them, and applies the Transform graph.
"""

from typing import Any

LABEL = "late"
# Few: each is a stage of Transform's Beam pipelines, which takes a second.
TEXT = ("carrier", "origin")
NUMBERS = ("distance",)


def preprocessing_fn(inputs: dict[str, Any]) -> dict[str, Any]:
    """Number the words and scale the numbers."""
    import tensorflow as tf
    import tensorflow_transform as tft

    outputs = {}
    for name in TEXT:
        words = tft.compute_and_apply_vocabulary(inputs[name], top_k=20, num_oov_buckets=1, vocab_filename=name)
        outputs[f"{name}_id"] = words
    for name in NUMBERS:
        outputs[f"{name}_scaled"] = tft.scale_to_z_score(tf.cast(inputs[name], tf.float32))
    outputs[LABEL] = inputs[LABEL]
    return outputs


def run_fn(fn_args: Any) -> None:
    """Train on the transformed examples and save with the signature of the tutorials."""
    import tensorflow as tf
    import tensorflow_transform as tft

    if fn_args.custom_config["keras"] == "keras":
        import keras
    else:
        import tf_keras as keras
    keras.utils.set_random_seed(1)
    transform = tft.TFTransformOutput(fn_args.transform_output)

    def dataset(files: list[str]) -> Any:
        records = tf.data.TFRecordDataset(tf.io.gfile.glob(list(files)), compression_type="GZIP").batch(64)
        parsed = records.map(lambda batch: tf.io.parse_example(batch, transform.transformed_feature_spec()))
        return parsed.map(lambda features: (features, features.pop(LABEL)))

    inputs = {f"{name}_id": keras.Input((1,), name=f"{name}_id", dtype="int64") for name in TEXT}
    inputs |= {f"{name}_scaled": keras.Input((1,), name=f"{name}_scaled") for name in NUMBERS}
    embedded = [keras.layers.Flatten()(keras.layers.Embedding(21, 4)(inputs[f"{name}_id"])) for name in TEXT]
    values = keras.layers.Concatenate()([*embedded, *(inputs[f"{name}_scaled"] for name in NUMBERS)])
    hidden = keras.layers.Dense(32, use_bias=False)(values)
    hidden = keras.layers.ReLU()(keras.layers.BatchNormalization(momentum=0.8)(hidden))
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid", name="late")(hidden))
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
    model.fit(dataset(fn_args.train_files), epochs=2, verbose=0)
    features = transform.transform_features_layer()
    raw_spec = {name: spec for name, spec in transform.raw_feature_spec().items() if name != LABEL}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(examples: Any) -> dict[str, Any]:
        return {"outputs": model(features(tf.io.parse_example(examples, raw_spec)))}

    if fn_args.custom_config["keras"] == "keras":
        archive = keras.export.ExportArchive()
        archive.track(model)
        archive.track(features)
        archive.add_endpoint("serving_default", serve)
        archive.write_out(fn_args.serving_model_dir, verbose=False)
    else:
        model.features = features
        model.save(fn_args.serving_model_dir, save_format="tf", signatures={"serving_default": serve})
