"""The outputs of a teacher for the records of a split: one file of rows per TFRecord file, read together with it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from tfopt.data.tfrecords import file_dataset

FLOAT32_BYTES = 4


class LabelsAndTeacher(NamedTuple):
    """The targets of a batch in distillation: labels as without a teacher, its outputs by the student's output name."""

    labels: Any
    teacher: Any


@dataclass(frozen=True)
class TeacherOutputs:
    """The teacher's outputs for every record of a split."""

    files: Sequence[Path]  # one file for each TFRecord file, in the same order: rows of float32, one row per record
    # the shape of an output, by the student's output name; a row holds one value of each, in this order
    shapes: Mapping[str, tuple[int, ...]]

    def open(self, records: Any, rows: Any) -> Any:
        """Return the dataset of (record, row) pairs of one TFRecord file; tf.data calls it with the file names."""
        length = FLOAT32_BYTES * sum(map(math.prod, self.shapes.values()))
        return tf.data.Dataset.zip((file_dataset(records), tf.data.FixedLengthRecordDataset(rows, length)))

    def attach(self, labels: Any, rows: Any) -> LabelsAndTeacher:
        """Combine the labels of a block with the teacher's outputs, decoded from its rows."""
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        parts = tf.split(tf.io.decode_raw(rows, tf.float32), sizes, axis=1)
        shaped = zip(self.shapes.items(), parts, strict=True)
        return LabelsAndTeacher(labels, {name: tf.reshape(part, [-1, *shape]) for (name, shape), part in shaped})
