"""Batch records of variable length across blocks.

If a model takes inputs of any length, each block of records is padded to its own longest record, and ``tf.data`` only
batches records of equal size. So records are taken out of their blocks as ragged tensors and padded again per batch.
"""

from typing import Any


def unbatch_blocks(blocks: Any) -> Any:
    """Return a dataset of single records from a dataset of blocks; dimensions of variable size become ragged."""
    import tensorflow as tf

    def make_ragged(*block: Any) -> Any:
        return tf.nest.map_structure(
            lambda part: (
                tf.RaggedTensor.from_tensor(part, ragged_rank=_last_open_axis(part)) if _last_open_axis(part) else part
            ),
            block,
        )

    if not any(map(_last_open_axis, tf.nest.flatten(blocks.element_spec))):
        return blocks.unbatch()
    return blocks.map(tf.autograph.experimental.do_not_convert(make_ragged)).unbatch()


def batch_records(records: Any, blocks: Any, size: int, *, drop_remainder: bool = False) -> Any:
    """Return a dataset of batches with the structure of the blocks, each padded at the end to its longest record.

    The records are those of `unbatch_blocks`, in any order.
    """
    import tensorflow as tf

    def pad(*batch: Any) -> Any:
        return tf.nest.map_structure(
            lambda spec, part: part.to_tensor() if _last_open_axis(spec) else part, blocks.element_spec, batch
        )

    batches = records.batch(size, drop_remainder=drop_remainder)
    if not any(map(_last_open_axis, tf.nest.flatten(blocks.element_spec))):
        return batches
    return batches.map(tf.autograph.experimental.do_not_convert(pad))


def _last_open_axis(part: Any) -> int:
    """Return the last axis, other than that of the records, whose size differs between blocks; 0 if there is none."""
    import tensorflow as tf

    if not isinstance(part, tf.Tensor | tf.TensorSpec) or part.shape.rank is None:
        return 0
    return max((axis for axis, size in enumerate(part.shape) if axis and size is None), default=0)
