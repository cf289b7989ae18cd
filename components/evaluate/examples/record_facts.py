"""Facts about the evaluated records that workers collect: their hashes, those of the training split, the labels."""

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from tfopt.data.record_hashes import Hashes, RecordHashes


@dataclass
class RecordFacts:
    """Facts about the records, mergeable in any order.

    Attributes:
        evaluated: Hashes of the evaluated records.
        training: Hashes of the records that models are trained on.
        is_whole: False if the training split has more records than are compared.
        labels: The smallest and the largest label.
    """

    evaluated: RecordHashes = field(default_factory=RecordHashes)
    training: RecordHashes = field(default_factory=RecordHashes)
    is_whole: bool = True
    labels: set[float] = field(default_factory=set)

    def add(self, hashes: Hashes, labels: NDArray[Any]) -> None:
        """Add evaluated records."""
        self.evaluated.add(hashes)
        if labels.size and labels.dtype.kind in "iuf":
            self._add_labels({labels.min().item(), labels.max().item()})

    def merge(self, other: "RecordFacts") -> None:
        """Add other records."""
        self.evaluated.merge(other.evaluated)
        self.training.merge(other.training)
        self.is_whole &= other.is_whole
        self._add_labels(other.labels)

    def _add_labels(self, labels: set[float]) -> None:
        every = self.labels | labels
        self.labels = {min(every), max(every)} if every else every
