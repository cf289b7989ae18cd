"""Check that every record of a split is readable and every number finite, and return the range of the labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.batches import read_batches
from tfopt.errors import ComponentError


@dataclass(frozen=True)
class SplitSummary:
    """The size and label range of a split.

    Attributes:
        count: Number of records.
        lowest: The lowest label value.
        highest: The highest label value.
    """

    count: int
    lowest: float
    highest: float


def check_split(split: str, files: Sequence[Path], specs: Mapping[str, TensorSpec], label: str) -> SplitSummary:
    """Read all records of a split once and return its summary.

    Args:
        split: The split's name, for errors.
        files: Its TFRecord files.
        specs: Every feature that training reads, including the label.
        label: The name of the label feature.

    Raises:
        ComponentError: If a record is damaged or its features differ from the first record's, or if a value is NaN or
            infinite.
    """
    count, lowest, highest = 0, math.inf, -math.inf
    not_finite = dict.fromkeys(specs, 0)
    for batch in read_batches(files, specs, batch_size=1024):
        count += len(batch[label])
        lowest, highest = min(lowest, float(batch[label].min())), max(highest, float(batch[label].max()))
        for name, array in batch.items():
            if array.dtype.kind == "f":
                not_finite[name] += int((~np.isfinite(array)).reshape(len(array), -1).any(1).sum())
    for name, records in not_finite.items():
        if records:
            raise ComponentError(
                f"split {split!r}: feature {name!r} is NaN or infinite in {records} of {count} records",
                "finite values",
                "fill in or leave out such records when preparing the examples",
            )
    return SplitSummary(count, lowest, highest)
