"""What ``examples.json`` and the artifact's metadata say of the examples."""

import json
from collections import Counter
from typing import Any

from tfopt.components.prepare_examples.readers.base import Source
from tfopt.components.prepare_examples.request import Request
from tfopt.components.prepare_examples.schema import Schema, stored_shapes
from tfopt.components.prepare_examples.shards import MOST_LABELS, Shard
from tfopt.components.prepare_examples.statistics import Rejects, Survey
from tfopt.components.prepare_examples.summary import FeatureSummary


def content(
    survey: Survey, rejects: Rejects, schema: Schema, shards: list[Shard], source: Source, request: Request
) -> dict[str, Any]:
    """Return the content of ``examples.json``; no path, time or runner in it, so equal data give equal files."""
    written = counts(shards, request)
    return {
        "splits": written,
        "features": _features(shards, schema, source, sum(written.values())),
        "label": source.label,
        "label_counts": {name: _labels([shard for shard in shards if shard.split == name]) for name in written},
        "classes": list(source.classes or schema.classes),
        "read": survey.rows,
        "rejected": {
            "count": rejects.count,
            "shown": [dict(zip(("file", "line", "reason"), place, strict=True)) for place in rejects.shown],
        },
        "seed": request.seed,
    }


def metadata(report: dict[str, Any]) -> dict[str, Any]:
    """The plain values shown with the artifact; ``split_names`` as stock TFX components look for it."""
    features = [f"{name} {facts['dtype']}{facts['shape']}" for name, facts in report["features"].items()]
    return {
        "split_names": json.dumps(list(report["splits"])),
        "counts": json.dumps(report["splits"]),
        "features": ", ".join(features[:20]) + (", …" if len(features) > 20 else ""),
        "label": report["label"],
        "rejected": report["rejected"]["count"],
    }


def counts(shards: list[Shard], request: Request) -> dict[str, int]:
    """How many examples each split has."""
    return {name: sum(shard.written for shard in shards if shard.split == name) for name in request.splits.names}


def _features(shards: list[Shard], schema: Schema, source: Source, examples: int) -> dict[str, Any]:
    shapes = stored_shapes(schema, source)
    found = {}
    for name, dtype in schema.types.items():
        total = FeatureSummary(dtype)
        for shard in shards:  # sorted by name, so that rounding is the same in every run
            if name in shard.features:
                total.merge(shard.features[name])
        found[name] = total.report(shapes.get(name), examples)
    for sparse in schema.sparse:
        facts = {"dtype": schema.types[sparse.values], "shape": [sparse.size], "missing": 0}
        found[sparse.name] = facts | {"sparse": {"positions": sparse.positions, "values": sparse.values}}
    return found


def _labels(shards: list[Shard]) -> dict[str, int]:
    """How often each class index occurs; nothing where the label is no class index or has very many values."""
    total: Counter[int] = Counter()
    for shard in shards:
        total.update(shard.labels)
    return {str(value): count for value, count in sorted(total.items())} if len(total) <= MOST_LABELS else {}
