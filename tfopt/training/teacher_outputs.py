"""What a teacher answered to the records of a split: a file of rows beside each file of records, read with it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tfopt.data.tfrecords import opened

BYTES = 4  # of a float32


class Taught(NamedTuple):
    """What a student learns from a batch.

    Attributes:
        labels: As without a teacher.
        answers: The teacher's, by the student's outputs.
    """

    labels: Any
    answers: Any


@dataclass(frozen=True)
class Answers:
    """Those to every record.

    Attributes:
        files: One for each file of records, in their order: float32 in rows, a row for each record in its order.
        shapes: Of an answer, by the student's output that learns it; a row holds one of each, in this order.
    """

    files: Sequence[Path]
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def names(self) -> list[str]:
        """The files as text."""
        return [str(file) for file in self.files]

    def opened(self, records: Any, rows: Any) -> Any:
        """The dataset of one file of records with its rows, for ``tf.data`` to call with their names."""
        import tensorflow as tf

        length = BYTES * sum(map(math.prod, self.shapes.values()))
        return tf.data.Dataset.zip((opened(records), tf.data.FixedLengthRecordDataset(rows, length)))

    def beside(self, labels: Any, rows: Any) -> Taught:
        """Put the answers of a block beside its labels."""
        import tensorflow as tf

        sizes = [math.prod(shape) for shape in self.shapes.values()]
        parts = tf.split(tf.io.decode_raw(rows, tf.float32), sizes, axis=1)
        shaped = zip(self.shapes.items(), parts, strict=True)
        return Taught(labels, {name: tf.reshape(part, [-1, *shape]) for (name, shape), part in shaped})
