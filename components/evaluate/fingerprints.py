"""Hashes of records: a bounded set that is merged in any order, to count equal records and records of two splits.

A record has two hashes of 64 bits: of its features, which are everything but the label, and of the whole. If there are
more than `MOST` different records, only those whose features' hash ends with some 0 bits are stored: an unbiased sample
that depends on the records alone, not on their order (Wegman's adaptive sampling: Flajolet, "On Adaptive Sampling",
1990). The records of one row with several labels are in the sample together.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 1 << 20  # different records; each takes 24 bytes
BUFFERED = 1 << 16

Hashes = NDArray[np.uint64]


@dataclass
class Fingerprints:
    """The hashes of a set of records.

    Attributes:
        level: Number of bits that are 0 in the features' hash of each stored record: one of ``2 ** level`` is stored.
        records: Sorted hashes of different records.
        features: The hash of the features of each.
        counts: Number of records with each hash.
        buffer: Hashes of records and of features that are not merged yet.
    """

    level: int = 0
    records: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    features: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    buffer: list[Hashes] = field(default_factory=list)

    def add(self, hashes: Hashes) -> None:
        """Add records: their hashes and those of their features, ``[records, 2]``, from `hash_records`."""
        self.buffer.append(hashes)
        if sum(map(len, self.buffer)) > BUFFERED:
            self.compact()

    def merge(self, other: "Fingerprints") -> None:
        """Add other records."""
        self.compact()
        other.compact()
        self.level = max(self.level, other.level)
        self._set(
            np.concatenate([self.records, other.records]),
            np.concatenate([self.features, other.features]),
            np.concatenate([self.counts, other.counts]),
        )

    def compact(self) -> None:
        """Merge the buffer."""
        if self.buffer:
            added = np.concatenate(self.buffer)
            self.buffer = []
            self._set(
                np.concatenate([self.records, added[:, 0]]),
                np.concatenate([self.features, added[:, 1]]),
                np.concatenate([self.counts, np.ones(len(added), np.int64)]),
            )

    def counted_in(self, other: "Fingerprints") -> tuple[int, int]:
        """Return how many of these records are among the others, and how many were compared."""
        self.compact()
        other.compact()
        compared = _in_sample(self.features, max(self.level, other.level))
        shared = np.isin(self.records[compared], other.records)
        return int(self.counts[compared][shared].sum()), int(self.counts[compared].sum())

    def counted_rows(self) -> tuple[int, int]:
        """Return the number of rows with different labels, and the number of their records."""
        self.compact()
        _, inverse, labels = np.unique(self.features, return_inverse=True, return_counts=True)
        return int((labels > 1).sum()), int(self.counts[labels[inverse] > 1].sum())

    def _set(self, records: Hashes, features: Hashes, counts: NDArray[np.int64]) -> None:
        """Keep these records, sorted, each once; raise the level until they are few enough."""
        order = np.argsort(records, kind="stable")
        records, features, counts = records[order], features[order], counts[order]
        starts = np.flatnonzero(np.concatenate([[True], records[1:] != records[:-1]])) if len(records) else order
        counts = np.add.reduceat(counts, starts) if len(records) else counts
        records, features = records[starts], features[starts]
        sampled = _in_sample(features, self.level)
        while sampled.sum() > MOST:
            self.level += 1
            sampled = _in_sample(features, self.level)
        self.records, self.features, self.counts = records[sampled], features[sampled], counts[sampled]


@dataclass
class RecordChecks:
    """Facts about the records, mergeable in any order.

    Attributes:
        evaluated: Hashes of the evaluated records.
        training: Hashes of the records that models are trained on.
        is_whole: False if the training split has more records than are compared.
        lowest: The smallest label.
        highest: The largest label.
    """

    evaluated: Fingerprints = field(default_factory=Fingerprints)
    training: Fingerprints = field(default_factory=Fingerprints)
    is_whole: bool = True
    lowest: float | None = None
    highest: float | None = None

    def add(self, hashes: Hashes, labels: NDArray[Any]) -> None:
        """Add evaluated records."""
        self.evaluated.add(hashes)
        if labels.size and labels.dtype.kind in "iuf":
            self._add_range(labels.min().item(), labels.max().item())

    def merge(self, other: "RecordChecks") -> None:
        """Add other records."""
        self.evaluated.merge(other.evaluated)
        self.training.merge(other.training)
        self.is_whole &= other.is_whole
        if other.lowest is not None and other.highest is not None:
            self._add_range(other.lowest, other.highest)

    def _add_range(self, lowest: float, highest: float) -> None:
        self.lowest = lowest if self.lowest is None else min(lowest, self.lowest)
        self.highest = highest if self.highest is None else max(highest, self.highest)


def hash_records(records: Iterable[bytes], label: str) -> Hashes:
    """Return the hash of each serialized tf.Example and of its features without the label, ``[records, 2]``.

    Equal features of one writer give equal hashes, whatever their order. What is not a tf.Example is left out. The
    values of a feature are hashed as they are stored, without parsing them.
    """
    from google.protobuf.message import DecodeError

    message, hashes = _example_of_bytes(), []
    for record in records:
        try:
            feature = dict(message.FromString(record).features.feature)
        except (DecodeError, UnicodeDecodeError):
            continue
        own_label = feature.pop(label, b"")
        parts = [
            b"%d %d %b%b" % (len(name), len(feature[name]), name.encode(), feature[name]) for name in sorted(feature)
        ]
        features = _hash(b"".join(parts))
        hashes.append(_hash(features + own_label) + features)
    return np.frombuffer(b"".join(hashes), "<u8").reshape(-1, 2)


def _hash(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:8]


@cache
def _example_of_bytes() -> Any:
    """Return a message class that reads a tf.Example with each feature as the bytes of its message."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="example_of_bytes.proto", package="tfopt", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    entry.field.add(name="key", number=1, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_STRING)
    entry.field.add(name="value", number=2, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_BYTES)
    map_type = {"label": kinds.LABEL_REPEATED, "type_name": ".tfopt.Features.FeatureEntry"}
    features.field.add(name="feature", number=1, type=kinds.TYPE_MESSAGE, **map_type)
    example = file.message_type.add(name="Example")
    one = {"label": kinds.LABEL_OPTIONAL, "type_name": ".tfopt.Features"}
    example.field.add(name="features", number=1, type=kinds.TYPE_MESSAGE, **one)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tfopt.Example"))


def _in_sample(features: Hashes, level: int) -> NDArray[np.bool_]:
    mask = np.uint64((1 << level) - 1)
    sampled: NDArray[Any] = (features & mask) == 0
    return sampled
