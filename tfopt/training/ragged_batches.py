"""Rows that a block of records filled up to its own longest: taken apart, and put together with those of other blocks.

Where a model takes inputs of any length, each block has another one, and ``tf.data`` batches only what is of one size.
"""

from typing import Any


def records_of(blocks: Any) -> Any:
    """The records of a data set of blocks, one by one, ragged where their sizes are open."""
    import tensorflow as tf

    def loosened(*block: Any) -> Any:
        return tf.nest.map_structure(
            lambda part: tf.RaggedTensor.from_tensor(part, ragged_rank=_open(part)) if _open(part) else part, block
        )

    if not any(map(_open, tf.nest.flatten(blocks.element_spec))):
        return blocks.unbatch()
    return blocks.map(tf.autograph.experimental.do_not_convert(loosened)).unbatch()


def batches_of(records: Any, blocks: Any, size: int, *, drop_remainder: bool = False) -> Any:
    """Batches of such records, which are what the blocks are: filled up, at the end of a row, to the longest of each.

    Args:
        records: Of `records_of`, in whatever order.
        blocks: What these were made of.
        size: Records in a batch.
        drop_remainder: Whether a last smaller batch is left out.
    """
    import tensorflow as tf

    def filled(*batch: Any) -> Any:
        return tf.nest.map_structure(
            lambda spec, part: part.to_tensor() if _open(spec) else part, blocks.element_spec, batch
        )

    batches = records.batch(size, drop_remainder=drop_remainder)
    if not any(map(_open, tf.nest.flatten(blocks.element_spec))):
        return batches
    return batches.map(tf.autograph.experimental.do_not_convert(filled))


def _open(part: Any) -> int:
    """The last of its sizes, counted from that of a record, that differs from block to block; 0 for none."""
    import tensorflow as tf

    if not isinstance(part, tf.Tensor | tf.TensorSpec) or part.shape.rank is None:
        return 0
    return max((at for at, size in enumerate(part.shape) if at and size is None), default=0)
