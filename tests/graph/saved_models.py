"""Export SavedModels of every kind that the graph tools must read, with TensorFlow 2 and TensorFlow 1."""

from pathlib import Path

import numpy as np


def two_ends(folder: Path) -> None:
    """Export two inputs of two dtypes, two outputs, unknown sizes, a table, two signatures with one kernel."""
    import tensorflow as tf

    class Model(tf.Module):
        def __init__(self):
            self.kernel = tf.Variable(np.random.default_rng(0).normal(size=(3, 4)), dtype=tf.float32, name="kernel")
            vocabulary = folder.parent / "vocabulary.txt"
            vocabulary.write_text("cat\ndog\nbird\n")
            filler = tf.lookup.TextFileInitializer(
                str(vocabulary),
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            )
            self.table = tf.lookup.StaticHashTable(filler, -1)

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, None, 3], tf.float32, name="zebra"),
                tf.TensorSpec([None], tf.string, name="animal"),
            ]
        )
        def serve(self, zebra, animal):
            number = tf.cast(self.table.lookup(animal), tf.float32)
            return {"scores": tf.einsum("blc,cd->bld", zebra, self.kernel) + number[:, None, None], "number": number}

        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="row")])
        def embed(self, row):
            return {"embedding": tf.nn.swish(row @ self.kernel)}

    model = Model()
    tf.saved_model.save(model, str(folder), signatures={"serving_default": model.serve, "embed": model.embed})


def control_flow(folder: Path) -> None:
    """Export a While whose body reads a variable, an If with a variable in one branch, and a lookup of rows."""
    import tensorflow as tf

    class Model(tf.Module):
        def __init__(self):
            self.kernel = tf.Variable([[0.5, -0.25], [0.125, 0.75]])
            self.rows = tf.Variable(tf.reshape(tf.range(8.0), (4, 2)))

        @tf.function(
            input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x"), tf.TensorSpec([], tf.int32, name="n")]
        )
        def serve(self, x, n):
            step = tf.constant(0)
            while step < n:
                x = tf.tanh(x @ self.kernel)
                step += 1
            y = x * 2.0 if n > 2 else x - self.kernel[0]  # autograph: a cond
            return {"y": y + tf.nn.embedding_lookup(self.rows, n)}

    model = Model()
    tf.saved_model.save(model, str(folder), signatures=model.serve)


def counter(folder: Path) -> None:
    """Export a model that counts its calls."""
    import tensorflow as tf

    class Model(tf.Module):
        def __init__(self):
            self.calls = tf.Variable(0.0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
        def serve(self, x):
            return {"y": x + self.calls.assign_add(1.0)}

    model = Model()
    tf.saved_model.save(model, str(folder), signatures=model.serve)


def mutable_table(folder: Path) -> None:
    """Export a model with a table that is filled by its checkpoint."""
    import tensorflow as tf

    class Model(tf.Module):
        def __init__(self):
            self.table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, 0.0)
            self.table.insert(tf.constant(["a"]), tf.constant([1.0]))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="x")])
        def serve(self, x):
            return {"y": self.table.lookup(x)}

    model = Model()
    tf.saved_model.save(model, str(folder), signatures=model.serve)


def estimator(folder: Path) -> None:
    """Export with TensorFlow 1: a reference variable, a table filled from an asset by the main op, two signatures."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        word = v1.placeholder(tf.string, [None], name="word")
        variable = v1.get_variable(
            "w", initializer=np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), use_resource=False
        )
        file = folder.parent / "words.txt"
        file.write_text("one\ntwo\n")
        table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                str(file), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
            ),
            default_value=7,
        )
        y = tf.nn.softmax(x @ variable, name="y")
        z = tf.identity(table.lookup(word), name="z")
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        info = v1.saved_model.build_tensor_info
        define = v1.saved_model.build_signature_def
        signatures = {
            "serving_default": define({"x": info(x)}, {"y": info(y)}, "tensorflow/serving/predict"),
            "words": define({"word": info(word)}, {"z": info(z)}, "tensorflow/serving/predict"),
        }
        builder = v1.saved_model.Builder(str(folder))
        assets = v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS)
        builder.add_meta_graph_and_variables(
            session, ["serve"], signatures, assets_collection=assets, main_op=v1.tables_initializer()
        )
        builder.save()


def number_of_an_animal(model: Path, animal: str) -> list[float]:
    """Serve a model of `two_ends` with TensorFlow alone; call it in a new process."""
    import tensorflow as tf

    serve = tf.saved_model.load(str(model)).signatures["serving_default"]
    return serve(zebra=tf.zeros([1, 2, 3]), animal=tf.constant([animal]))["number"].numpy().tolist()


def fold(model: Path, folded: Path) -> None:
    """Fold the batch norms of a model; call it in a new process."""
    from tfopt.components.fold_batch_norm.component import fold_batch_norm
    from tfopt.keras_models.model_code import is_trusted

    fold_batch_norm(model, folded, trust_model_code=is_trusted())
