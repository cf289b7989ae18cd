"""Small models of one formula, for the tests of runtimes."""

from pathlib import Path

from tfopt import runtimes
from tfopt.artifacts import Model


def saved(folder: Path, function, **specs) -> Path:
    """A bare SavedModel of one function of named tensors, each given as shape and dtype."""
    import tensorflow as tf

    module = tf.Module()
    signature = [tf.TensorSpec(shape, dtype, name=name) for name, (shape, dtype) in specs.items()]
    module.serve = tf.function(function, input_signature=signature)
    tf.saved_model.save(module, str(folder), signatures=module.serve)
    return folder


def threads_after_loading(model: Path, threads: int) -> int:
    """What TensorFlow says of its threads; for a process of its own."""
    runtimes.load(Model(model), threads=threads)
    import tensorflow as tf

    return tf.config.threading.get_intra_op_parallelism_threads()
