"""Shards: assignment of rows by the hash of their content, and writing of a shard in the order of the hashes.

A shard is written in a Map after a GroupByKey, because Beam's sinks lose data on the Dask runner.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tfopt.components.prepare_examples import tf_example
from tfopt.components.prepare_examples.cells import MissingError, UnusableError, as_text
from tfopt.components.prepare_examples.feature_summary import FeatureSummary
from tfopt.components.prepare_examples.files import open_for_writing
from tfopt.components.prepare_examples.parameters import Settings, Splits
from tfopt.components.prepare_examples.readers.base import Row, Source
from tfopt.components.prepare_examples.readers.tfrecords import write_record
from tfopt.components.prepare_examples.schema import Features, Schema
from tfopt.components.prepare_examples.statistics import Rejects

SHARD_BYTES = 128 << 20  # one shard is sorted in memory
BATCH = 1024
MOST_LABELS = 1000


@dataclass
class Shard:
    """A written shard: rejected rows, number of rows dropped for a missing value, statistics of its examples."""

    name: str
    written: int = 0
    rejects: Rejects = field(default_factory=Rejects)
    dropped: int = 0
    features: dict[str, FeatureSummary] = field(default_factory=dict)
    labels: Counter[int] = field(default_factory=Counter)

    @property
    def split(self) -> str:
        """The split that the shard belongs to."""
        return self.name.split("/")[0].removeprefix("Split-")


@dataclass(frozen=True)
class Layout:
    """The number of shards of each split, and the assignment of rows to them."""

    splits: Splits
    seed: int
    shards: dict[str, int]
    has_typed_cells: bool = False

    @classmethod
    def plan(cls, source: Source, settings: Settings) -> "Layout":
        """Choose the number of shards from the size of the data; small data have one for each split."""
        if source.image:
            size = len(source.files) * math.prod(source.image) * 4
        else:
            size = sum(
                bytes_ * (4 if file.endswith((".gz", ".parquet")) else 1) for file, bytes_ in source.files.items()
            )
        splits = settings.parsed_splits
        shares = {name: size * weight / splits.total for name, weight in splits.weights}
        shards = {name: max(1, math.ceil(share / SHARD_BYTES)) for name, share in shares.items()}
        return cls(splits, settings.seed, shards, source.is_table and not source.has_text_cells)

    def assign(self, row: Row) -> tuple[int, tuple[bytes, Row]]:
        """Return the index of the row's shard in `names`, and the row with the hash that it is sorted by."""
        content = row.payload or f"{row.file}:{row.line}".encode()
        if self.has_typed_cells and row.payload:
            content = json.dumps(as_text(json.loads(row.payload))).encode()
        key = hashlib.sha256(b"%d\0" % self.seed + content).digest()
        split = self.splits.at(int.from_bytes(key[:8], "big"))
        index = int.from_bytes(key[8:16], "big") * self.shards[split] >> 64
        before = self.splits.names[: self.splits.names.index(split)]
        return sum(self.shards[name] for name in before) + index, (key, row)

    def names(self) -> list[str]:
        """Return the file of every shard, relative to the examples."""
        return [
            f"Split-{split}/data_tfrecord-{index:05d}-of-{count:05d}.gz"
            for split, count in self.shards.items()
            for index in range(count)
        ]


def write_shard(
    name: str, keyed_rows: Iterable[tuple[bytes, Row]], schema: Schema, source: Source, target: str
) -> Shard:
    """Write the rows of a shard, sorted by their hashes, and return the shard."""
    shard = Shard(name)
    rows = iter(sorted(keyed_rows, key=lambda pair: (pair[0], pair[1].file, pair[1].line)))
    types = schema.types
    with open_for_writing(f"{target.rstrip('/')}/{shard.name}") as stream:
        while batch := [row for _, row in islice(rows, BATCH)]:
            usable = _usable(batch, schema, source, shard)
            for features in usable:
                write_record(stream, tf_example.serialize(features, types))
            _add_statistics(shard, usable, schema)
    return shard


def _usable(rows: Sequence[Row], schema: Schema, source: Source, shard: Shard) -> list[Features]:
    usable = []
    for row in rows:
        try:
            if row.problem:
                raise UnusableError(row.problem)
            usable.append(schema.features(row, source))
        except UnusableError as error:
            shard.rejects.add(row, str(error))
        except MissingError:
            shard.dropped += 1
    return usable


def _add_statistics(shard: Shard, batch: Sequence[Features], schema: Schema) -> None:
    shard.written += len(batch)
    for name, dtype in schema.types.items():
        values = [features[name] for features in batch if name in features]
        shard.features.setdefault(name, FeatureSummary(dtype)).add(values)
    if schema.types[schema.label] == "int64" and len(shard.labels) <= MOST_LABELS:
        shard.labels.update(int(features[schema.label][0]) for features in batch)
