"""Hashes of records: a bounded set that is merged in any order, to count equal records and records of two splits.

A record has two hashes of 64 bits: of its features, which are everything but the label, and of the whole. If there are
more than `MOST` different records, only those whose features' hash ends with some 0 bits are stored: an unbiased sample
that depends on the records alone, not on their order (Wegman's adaptive sampling: Flajolet, "On Adaptive Sampling",
1990). The records of one row with several labels are in the sample together.
"""

import base64
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts.model_card import TRAINED_ON, ModelCard, TrainedOn
from tfopt.data import tf_example
from tfopt.data.tfrecords import read_blocks
from tfopt.errors import ComponentError
from tfopt.value_types import JsonObject

MOST = 1 << 20  # different records; each takes 24 bytes
MOST_LEARNED = 4096  # of a model card, where each takes 11 bytes
BUFFERED = 1 << 16
MOST_FILES = 64  # of a training split: prepare_examples writes shards of about 128 MB
MOST_BYTES = 128 << 20  # of the records of a file
MOST_RECORDS = 1 << 18  # of a file
BATCH = 256
FACTOR = 0x1E3779B97F4A7C15  # an odd number: equal hashes need equal features and an equal label

Hashes = NDArray[np.uint64]


@dataclass
class RecordHashes:
    """The hashes of a set of records."""

    level: int = 0  # number of bits that are 0 in the features' hash of each stored record: one of 2 ** level is stored
    records: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))  # sorted hashes of different records
    features: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))  # the hash of the features of each
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))  # number of records with each hash
    buffer: list[Hashes] = field(default_factory=list)  # hashes of records and of features that are not merged yet
    most: int = field(default_factory=lambda: MOST)  # the largest number of different records that are stored

    def add(self, hashes: Hashes) -> None:
        """Add records: their hashes and those of their features, ``[records, 2]``, from `hash_records`."""
        self.buffer.append(hashes)
        if sum(map(len, self.buffer)) > BUFFERED:
            self.compact()

    def merge(self, other: "RecordHashes") -> None:
        """Add other records."""
        self.compact()
        other.compact()
        self.level = max(self.level, other.level)
        self._insert(other.records, other.features, other.counts)

    def compact(self) -> None:
        """Merge the buffer."""
        if self.buffer:
            added = np.concatenate(self.buffer)
            self.buffer = []
            self._insert(added[:, 0], added[:, 1], np.ones(len(added), np.int64))

    def counted_in(self, other: "RecordHashes") -> tuple[int, int]:
        """Return how many of these records are among the others, and how many were compared."""
        self.compact()
        other.compact()
        compared = _in_sample(self.features, max(self.level, other.level))
        shared = np.isin(self.records[compared], other.records)
        return int(self.counts[compared][shared].sum()), int(self.counts[compared].sum())

    def counted_features_in(self, learned: "RecordHashes", ignored: "RecordHashes") -> tuple[int, int]:
        """Return how many of these records have features of learned, not ignored ones, and how many were compared."""
        for each in (self, learned, ignored):
            each.compact()
        compared = _in_sample(self.features, max(self.level, learned.level, ignored.level))
        features, counts = self.features[compared], self.counts[compared]
        shared = np.isin(features, learned.features) & ~np.isin(features, ignored.features)
        return int(counts[shared].sum()), int(counts.sum())

    def counted_rows(self) -> tuple[int, int]:
        """Return the number of rows with different labels, and the number of their records."""
        self.compact()
        _, inverse, labels = np.unique(self.features, return_inverse=True, return_counts=True)
        return int((labels > 1).sum()), int(self.counts[labels[inverse] > 1].sum())

    def _insert(self, records: Hashes, features: Hashes, counts: NDArray[np.int64]) -> None:
        """Add records to the sorted ones, each once; raise the level until they are few enough."""
        records, features = np.concatenate([self.records, records]), np.concatenate([self.features, features])
        counts, order = np.concatenate([self.counts, counts]), np.argsort(records, kind="stable")
        records, features, counts = records[order], features[order], counts[order]
        starts = np.flatnonzero(np.concatenate([[True], records[1:] != records[:-1]])) if len(records) else order
        counts = np.add.reduceat(counts, starts) if len(records) else counts
        records, features = records[starts], features[starts]
        sampled = _in_sample(features, self.level)
        while sampled.sum() > self.most:
            self.level += 1
            sampled = _in_sample(features, self.level)
        self.records, self.features, self.counts = records[sampled], features[sampled], counts[sampled]


def hash_records(records: Sequence[bytes] | NDArray[Any], label: str) -> Hashes:
    """Return the hash of each serialized tf.Example and of its features without the label, ``[records, 2]``.

    Equal features of one writer give equal hashes, whatever their order: the hash of several features is the sum of
    theirs. What is not a tf.Example is left out. The values of a feature are hashed as they are stored.
    """
    import tensorflow as tf

    if not len(records):
        return np.zeros((0, 2), np.uint64)
    try:
        maps, _ = _field(records, "Example", "features")
        # A record without features has an empty map.
        entries, count = _field(tf.strings.reduce_join(maps, axis=1), "Features", "feature")
        keys, _ = _field(entries, "Features.FeatureEntry", "key")
    except tf.errors.DataLossError:
        valid = [record for record in records if _is_example(record)]
        return hash_records(valid if len(valid) < len(records) else [], label)
    hashes = tf.strings.to_hash_bucket_fast(entries, 2**63 - 1).numpy().astype(np.uint64)
    hashes[np.arange(hashes.shape[1]) >= count] = 0
    is_label = keys.numpy().reshape(hashes.shape) == label.encode()
    own_label = hashes.sum(1, where=is_label)
    others = hashes.sum(1, where=~is_label)
    return np.stack([others * np.uint64(FACTOR) + own_label, others], 1)


def first_blocks(blocks: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    """Yield blocks of `BATCH` records of a file up to `MOST_RECORDS` and `MOST_BYTES`."""
    size = 0
    for block in itertools.islice(blocks, MOST_RECORDS // BATCH):
        yield block
        size += sum(map(len, block))
        if size > MOST_BYTES:
            return


def trained_on_facts(files: list[Path], label: str, cards: Iterable[ModelCard]) -> JsonObject:
    """Return the entry of a model card for a model that is trained on the first `MOST_FILES` of the training split.

    It is a sample of the hashes of the records' features, by which `evaluate` finds them in other examples. The cards
    of models that are made from the model have it, too. The samples in the cards of the models that it learned from are
    added.
    """
    learned = RecordHashes(most=MOST_LEARNED)
    for file in files[:MOST_FILES]:
        for block in first_blocks(read_blocks([file], BATCH)):
            learned.add(hash_records(block, label)[:, [1, 1]])  # only of the features
    for card in cards:
        if earlier := read_trained_on(card, label):
            learned.merge(earlier)
    learned.compact()
    return {
        "label": label,
        "level": learned.level,
        "features": base64.b64encode(learned.features.astype("<u8").tobytes()).decode(),
    }


def read_trained_on(card: ModelCard, label: str) -> RecordHashes | None:
    """Return the sample of a card, None if it has none for the label; raise ComponentError if hashes are not whole."""
    trained_on = card.trained_on or TrainedOn()
    if not trained_on.features or trained_on.label != label:
        return None
    learned = RecordHashes(level=trained_on.level, most=MOST_LEARNED)
    try:
        features = np.frombuffer(base64.b64decode(trained_on.features, validate=True), "<u8")
    except ValueError as error:
        received = f"model card of {card.name}: {TRAINED_ON}.features: {error}"
        expected = "hashes of 8 bytes in Base64, as tfopt writes them"
        raise ComponentError(received, expected, f"restore the card, or remove {TRAINED_ON} from it") from error
    learned.add(np.stack([features.astype(np.uint64)] * 2, axis=1))
    learned.compact()
    return learned


def _is_example(record: bytes) -> bool:
    try:
        tf_example.parse(record)
    except ValueError:
        return False
    return True


def _field(messages: Any, message: str, name: str) -> tuple[Any, Any]:
    """Return the serialized values of a field of tf.Example's messages, ``[messages, values]``, and their numbers."""
    import tensorflow as tf

    sizes, (values,) = tf.io.decode_proto(messages, f"tensorflow.{message}", [name], [tf.string])
    return values, sizes.numpy()


def _in_sample(features: Hashes, level: int) -> NDArray[np.bool_]:
    mask = np.uint64((1 << level) - 1)
    sampled: NDArray[Any] = (features & mask) == 0
    return sampled
