"""Padding of sequences to a few lengths, so that XLA compiles a program for each of them only."""

from collections.abc import Callable
from typing import Any

from tfopt import runtimes
from tfopt.artifacts import SavedModel
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import draw_inputs
from tfopt.errors import ComponentError
from tfopt.graph.frozen_model import Signature
from tfopt.measurement.parity import compare
from tfopt.runtimes import Runtime
from tfopt.value_types import Tensors

RECORDS = 4  # of each length that is compared


def sequence_input(signature: Signature) -> str:
    """Return the input with an open second axis.

    Raises:
        ComponentError: If none, or more than one input has such an axis.
    """
    names = [
        name for name, end in signature.inputs.items() if end.shape and len(end.shape) > 1 and end.shape[1] is None
    ]
    if len(names) == 1:
        return names[0]
    raise ComponentError(
        f"sequence_buckets for a signature in which {len(names)} inputs have an open second axis: {', '.join(names)}",
        "one input with an open second axis",
        f"leave sequence_buckets out{'' if names else ', or export the model with the sequence axis open'}",
    )


def padded(serve: Callable[..., Any], signature: Signature, buckets: list[int]) -> Any:
    """Return a ``tf.function`` that pads its sequences, calls the compiled one, and cuts the outputs."""
    import tensorflow as tf

    name = sequence_input(signature)
    sequences = {
        key for key, end in signature.outputs.items() if end.shape and len(end.shape) > 1 and end.shape[1] is None
    }
    rank = len(signature.inputs[name].shape or ())

    def call(**inputs: Any) -> Tensors:
        length = tf.shape(inputs[name])[1]
        sizes = tf.constant(buckets, tf.int32)
        size = tf.reduce_min(tf.where(sizes >= length, sizes, sizes.dtype.max))
        size = tf.where(length > buckets[-1], length, size)
        paddings = [[0, 0], [0, size - length], *[[0, 0]] * (rank - 2)]
        outputs = serve(**{**inputs, name: tf.pad(inputs[name], paddings)})
        return {key: value[:, :length] if key in sequences else value for key, value in outputs.items()}

    return tf.function(call, autograph=False)


def draw_lengths(model: Runtime, buckets: list[int]) -> dict[int, Batch]:
    """Return random inputs by the length of their sequences: between buckets, and the buckets themselves."""
    (name,) = (name for name, spec in model.inputs.items() if len(spec.shape) > 1 and spec.shape[1] is None)
    lengths = {size - gap for size in buckets for gap in (0, 1, max(1, size // 3)) if size > gap}
    batches = {}
    for length in sorted(lengths):
        spec = model.inputs[name]
        closed = TensorSpec(spec.dtype, (spec.shape[0], length, *spec.shape[2:]))
        batches[length], _ = draw_inputs(None, {**model.inputs, name: closed}, records=RECORDS, seed=length)
    return batches


def check_lengths(parent: SavedModel, child: SavedModel, buckets: list[int], tolerance: float) -> float:
    """Compare a model that pads with its parent, on sequences of lengths around the buckets; return the largest error.

    Raises:
        ComponentError: If padding changes an output by more than the tolerance, as a fraction of its range.
    """
    largest = 0.0
    with runtimes.load(parent) as before, runtimes.load(child, signature=parent.signature) as after:
        for length, batch in draw_lengths(before, buckets).items():
            for name, parity in compare(before, after, [batch]).items():
                largest = max(largest, parity.rewrite_error)
                if not parity.rewrite_error <= tolerance:
                    by = f"{parity.rewrite_error:.2g} of its range"
                    raise ComponentError(
                        f"padding sequences of length {length} changes output {name!r} by {by}",
                        f"at most {tolerance:g}: a model that ignores added steps of zeros",
                        "mask the steps (Masking, or mask_zero of an Embedding), or leave sequence_buckets out",
                    )
    return largest
