"""One pass over a split before training: every record can be read, every number is finite, and what the labels are."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.batches import read_batches
from tfopt.errors import ComponentError


@dataclass(frozen=True)
class Survey:
    """What was found.

    Attributes:
        count: Records.
        lowest: The lowest label value.
        highest: The highest.
    """

    count: int
    lowest: float
    highest: float


def survey(split: str, files: Sequence[Path], specs: Mapping[str, TensorSpec], label: str) -> Survey:
    """Read everything once.

    Args:
        split: Its name, for errors.
        files: Its TFRecord files.
        specs: Every feature that training reads, the label among them.
        label: The label's name.

    Raises:
        ComponentError: When a record is damaged or unlike the first, or a value is NaN or infinite.
    """
    count, lowest, highest = 0, math.inf, -math.inf
    broken = dict.fromkeys(specs, 0)
    for batch in read_batches(files, specs, batch_size=1024):
        count += len(batch[label])
        lowest, highest = min(lowest, float(batch[label].min())), max(highest, float(batch[label].max()))
        for name, array in batch.items():
            if array.dtype.kind == "f":
                broken[name] += int((~np.isfinite(array)).reshape(len(array), -1).any(1).sum())
    for name, records in broken.items():
        if records:
            raise ComponentError(
                f"split {split!r}: feature {name!r} is NaN or infinite in {records} of {count} records",
                "finite values",
                "fill in or leave out such records when preparing the examples",
            )
    return Survey(count, lowest, highest)
