"""User code of a TFX pipeline for images, as TFX's CIFAR-10 example writes it: the Transform graph decodes PNGs."""

from typing import Any

IMAGE, LABEL = "image", "label"
SIZE = 16  # the images are enlarged to this many pixels


def preprocessing_fn(inputs: dict[str, Any]) -> dict[str, Any]:
    """Decode, enlarge and scale the images."""
    import tensorflow as tf

    def decode(content: Any) -> Any:
        return tf.io.decode_png(content[0], channels=1)

    pixels = tf.map_fn(decode, inputs[IMAGE], fn_output_signature=tf.TensorSpec([8, 8, 1], tf.uint8))
    enlarged = tf.image.resize(tf.cast(pixels, tf.float32), [SIZE, SIZE])
    return {f"{IMAGE}_pixels": enlarged / 127.5 - 1.0, LABEL: inputs[LABEL]}


def run_fn(fn_args: Any) -> None:
    """Train on the transformed examples and save with the signature of the example."""
    import tensorflow as tf
    import tensorflow_transform as tft
    import tf_keras as keras

    keras.utils.set_random_seed(1)
    transform = tft.TFTransformOutput(fn_args.transform_output)

    def dataset(files: list[str]) -> Any:
        records = tf.data.TFRecordDataset(tf.io.gfile.glob(list(files)), compression_type="GZIP").batch(32)
        parsed = records.map(lambda batch: tf.io.parse_example(batch, transform.transformed_feature_spec()))
        return parsed.map(lambda features: (features, features.pop(LABEL)))

    image = keras.Input((SIZE, SIZE, 1), name=f"{IMAGE}_pixels")
    hidden = keras.layers.Conv2D(8, 3, strides=2, use_bias=False)(image)
    hidden = keras.layers.ReLU()(keras.layers.BatchNormalization(momentum=0.8)(hidden))
    digit = keras.layers.Dense(10, activation="softmax", name="digit")(keras.layers.Flatten()(hidden))
    model = keras.Model(image, digit)
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(dataset(fn_args.train_files), epochs=8, verbose=0)
    model.features = transform.transform_features_layer()
    raw_spec = {IMAGE: transform.raw_feature_spec()[IMAGE]}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(examples: Any) -> dict[str, Any]:
        return {"digit": model(model.features(tf.io.parse_example(examples, raw_spec)))}

    model.save(fn_args.serving_model_dir, save_format="tf", signatures={"serving_default": serve})
