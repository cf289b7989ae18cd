"""Writing: each row's place from its content's hash, and one shard at a time in the order of the hashes.

A shard is written inside a Map after a GroupByKey: Beam's own sinks lose data on the Dask runner.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tfopt.components.prepare_examples import tf_example
from tfopt.components.prepare_examples.files import writing
from tfopt.components.prepare_examples.readers.base import Row, Source
from tfopt.components.prepare_examples.readers.tfrecords import write
from tfopt.components.prepare_examples.request import Request, Splits
from tfopt.components.prepare_examples.schema import Features, Schema, UnusableError
from tfopt.components.prepare_examples.statistics import Rejects
from tfopt.components.prepare_examples.summary import FeatureSummary

SHARD_BYTES = 128 << 20  # one shard is sorted in memory
BATCH = 1024
MOST_LABELS = 1000


@dataclass
class Shard:
    """What became of one shard's rows."""

    name: str
    written: int = 0
    rejects: Rejects = field(default_factory=Rejects)
    features: dict[str, FeatureSummary] = field(default_factory=dict)
    labels: Counter[int] = field(default_factory=Counter)

    @property
    def split(self) -> str:
        """The split it belongs to."""
        return self.name.split("/")[0].removeprefix("Split-")


@dataclass(frozen=True)
class Layout:
    """How many shards each split has, and which of them a row falls into."""

    splits: Splits
    seed: int
    shards: dict[str, int]

    @classmethod
    def plan(cls, source: Source, request: Request) -> "Layout":
        """Size the shards by the data; small data get one each."""
        if source.image:
            size = len(source.files) * math.prod(source.image) * 4
        else:
            size = sum(bytes_ * (4 if file.endswith(".gz") else 1) for file, bytes_ in source.files.items())
        shares = {name: size * weight / request.splits.total for name, weight in request.splits.weights}
        return cls(
            request.splits,
            request.seed,
            {name: max(1, math.ceil(share / SHARD_BYTES)) for name, share in shares.items()},
        )

    def place(self, row: Row) -> tuple[int, tuple[bytes, Row]]:
        """Return the row's shard as an index of `names`, and the row after the hash it is sorted by."""
        content = row.payload or f"{row.file}:{row.line}".encode()
        key = hashlib.sha256(b"%d\0" % self.seed + content).digest()
        split = self.splits.at(int.from_bytes(key[:8], "big"))
        index = int.from_bytes(key[8:16], "big") * self.shards[split] >> 64
        before = self.splits.names[: self.splits.names.index(split)]
        return sum(self.shards[name] for name in before) + index, (key, row)

    def names(self) -> list[str]:
        """Every shard's file, as seen from the examples."""
        return [
            f"Split-{split}/data_tfrecord-{index:05d}-of-{count:05d}.gz"
            for split, count in self.shards.items()
            for index in range(count)
        ]


def write_shard(
    name: str, keyed_rows: Iterable[tuple[bytes, Row]], schema: Schema, source: Source, target: str
) -> Shard:
    """Write one shard's rows, sorted by their hashes, and report on them."""
    shard = Shard(name)
    rows = iter(sorted(keyed_rows, key=lambda pair: (pair[0], pair[1].file, pair[1].line)))
    types = schema.types
    with writing(f"{target.rstrip('/')}/{shard.name}") as stream:
        while batch := [row for _, row in islice(rows, BATCH)]:
            usable = _usable(batch, schema, source, shard.rejects)
            for features in usable:
                write(stream, tf_example.serialize(features, types))
            _report(shard, usable, schema)
    return shard


def _usable(rows: Sequence[Row], schema: Schema, source: Source, rejects: Rejects) -> list[Features]:
    usable = []
    for row in rows:
        try:
            if row.problem:
                raise UnusableError(row.problem)
            usable.append(schema.features(row, source))
        except UnusableError as error:
            rejects.add(row, str(error))
    return usable


def _report(shard: Shard, batch: Sequence[Features], schema: Schema) -> None:
    shard.written += len(batch)
    for name, dtype in schema.types.items():
        values = [features[name] for features in batch if name in features]
        shard.features.setdefault(name, FeatureSummary(dtype)).add(values)
    if schema.types[schema.label] == "int64" and len(shard.labels) <= MOST_LABELS:
        shard.labels.update(int(features[schema.label][0]) for features in batch)
