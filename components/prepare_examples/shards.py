"""Shards: assignment of rows by the hash of their content, and writing of a shard in the order of the hashes.

The rows of a large shard are grouped by ranges of hashes: a group is sorted in memory and written as a part, and the
parts are joined, because some engines make one record of a group. Groups are written in a Map after a GroupByKey,
because Beam's sinks lose data on the Dask runner.
"""

import hashlib
import json
import math
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from tfopt.components.prepare_examples.cells import as_text
from tfopt.components.prepare_examples.files import open_for_reading, open_gzip
from tfopt.components.prepare_examples.parameters import Settings, Splits
from tfopt.components.prepare_examples.readers.base import Row, Source
from tfopt.components.prepare_examples.readers.tfrecords import write_record
from tfopt.components.prepare_examples.schema import Schema
from tfopt.components.prepare_examples.survey.statistics import FeatureSummary, Rejects
from tfopt.data import tf_example

SHARD_BYTES = 128 << 20
GROUP_BYTES = 8 << 20  # of input: in Flink's memory, rows take several times that
MOST_GROUPS = 1 << 32  # of a shard
PARTS = ".parts"  # folder of the parts
SHARD_LEVEL, PART_LEVEL = 6, 1  # of compression; a part is read once
COPIED_BYTES = 1 << 20
BATCH = 1024
MOST_LABELS = 1000


@dataclass
class Shard:
    """A written shard or part of one, with statistics."""

    name: str  # file of the shard, relative to the examples
    file: str = ""  # file that was written: that of the shard, or of a part
    group: int = 0  # number of the first group in it
    written: int = 0  # number of examples
    rejects: Rejects = field(default_factory=Rejects)
    dropped: int = 0  # number of rows dropped for a missing value
    features: dict[str, FeatureSummary] = field(default_factory=dict)
    # Number of examples of each integer label, or of more than `MOST_LABELS` of them
    labels: Counter[int] = field(default_factory=Counter)

    @property
    def split(self) -> str:
        """The split that the shard belongs to."""
        return self.name.split("/")[0].removeprefix("Split-")

    def add(self, part: "Shard") -> None:
        """Add the numbers of a part, or of another shard."""
        self.written += part.written
        self.rejects.merge(part.rejects)
        self.dropped += part.dropped
        for name, summary in part.features.items():
            self.features.setdefault(name, FeatureSummary(summary.dtype)).merge(summary)
        self.labels.update(part.labels)


@dataclass(frozen=True)
class Layout:
    """The number of shards of each split, and the assignment of rows to them."""

    splits: Splits
    seed: int
    shards: dict[str, int]  # number of shards of each split
    has_typed_cells: bool = False  # whether rows are hashed with their cells as text
    # For each split, the number of ranges that all hashes are divided into: rows of one shard and one range are a
    # group; by default 1
    ranges: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def plan(cls, source: Source, settings: Settings) -> "Layout":
        """Choose the numbers of shards and groups from the size of the data; small data have one for each split."""
        if source.format == "images":
            size = len(source.files) * math.prod(source.image) * 4
        else:
            size = sum(
                bytes_ * (4 if file.endswith((".gz", ".parquet")) else 1) for file, bytes_ in source.files.items()
            )
        splits = settings.parsed_splits
        shares = {name: size * weight / splits.total for name, weight in splits.weights}
        shards = {name: max(1, math.ceil(share / SHARD_BYTES)) for name, share in shares.items()}
        grouped = 0 if source.format == "images" else size  # the row of an image is its name
        ranges = {name: max(1, math.ceil(grouped / (count * GROUP_BYTES))) for name, count in shards.items()}
        return cls(splits, settings.seed, shards, source.is_table and not source.has_text_cells, ranges)

    def assign(self, row: Row) -> tuple[int, tuple[bytes, Row]]:
        """Return the number of the row's group, and the row with the hash that it is sorted by.

        Group ``n`` is in shard ``n // MOST_GROUPS`` of `names`; all hashes of a group are below those of the next.
        """
        content = row.payload or f"{row.file}:{row.line}".encode()
        if self.has_typed_cells and row.payload:
            content = json.dumps(as_text(json.loads(row.payload))).encode()
        key = hashlib.sha256(b"%d\0" % self.seed + content).digest()
        position = int.from_bytes(key[:8], "big")
        split = self.splits.at(position)
        index = int.from_bytes(key[8:16], "big") * self.shards[split] >> 64
        before = self.splits.names[: self.splits.names.index(split)]
        shard = sum(self.shards[name] for name in before) + index
        return shard * MOST_GROUPS + (position * self.ranges.get(split, 1) >> 64), (key, row)

    def names(self) -> list[str]:
        """Return the file of every shard, relative to the examples."""
        return [
            f"Split-{split}/data_tfrecord-{index:05d}-of-{count:05d}.gz"
            for split, count in self.shards.items()
            for index in range(count)
        ]

    def started(self, group: int) -> Shard:
        """Return a group with nothing written: a shard if its split has no ranges, or a part of one."""
        index = group // MOST_GROUPS
        shard = Shard(self.names()[index], group=group)
        is_whole = self.ranges.get(shard.split, 1) == 1
        shard.file = shard.name if is_whole else f"{PARTS}/{index:05d}-{group % MOST_GROUPS:05d}.gz"
        return shard


def write_group(
    shard: Shard, keyed_rows: Iterable[tuple[bytes, Row]], schema: Schema, source: Source, target: str
) -> Shard:
    """Write the rows of a group, sorted by their hashes, and return the shard or part with its numbers."""
    rows = iter(sorted(keyed_rows, key=lambda pair: (pair[0], pair[1].file, pair[1].line)))
    types = schema.types
    level = SHARD_LEVEL if shard.file == shard.name else PART_LEVEL
    with open_gzip(f"{target}/{shard.file}", level) as stream:
        while batch := [row for _, row in islice(rows, BATCH)]:
            usable, dropped = schema.usable(batch, source, shard.rejects)
            shard.dropped += dropped
            for features in usable:
                write_record(stream, tf_example.serialize(features, types))
            shard.written += len(usable)
            for name, dtype in types.items():
                values = [features[name] for features in usable if name in features]
                shard.features.setdefault(name, FeatureSummary(dtype)).add(values)
            if types[schema.label] == "int64" and len(shard.labels) <= MOST_LABELS:
                shard.labels.update(int(features[schema.label][0]) for features in usable)
    return shard


def join_parts(parts: Iterable[Shard], target: str) -> Shard:
    """Write the examples of all parts of a shard to its file, in the order of their hashes, and return the shard."""
    ordered = sorted(parts, key=lambda part: part.group)
    if ordered[0].file == ordered[0].name:
        return ordered[0]
    shard = Shard(ordered[0].name, ordered[0].name, ordered[0].group)
    with open_gzip(f"{target}/{shard.name}", SHARD_LEVEL) as stream:
        for part in ordered:
            with open_for_reading(f"{target}/{part.file}") as written:
                shutil.copyfileobj(written, stream, COPIED_BYTES)
            shard.add(part)
    return shard


def add_up(shards: Iterable[Shard]) -> Shard:
    """Return the sums of the shards' numbers. They depend on the order of the shards by rounding."""
    total = Shard("")
    for shard in shards:
        total.add(shard)
    return total
