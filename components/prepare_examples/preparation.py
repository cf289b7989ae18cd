"""From the request to the examples: a first look, the pipeline, and the account of what came out of it."""

import json
import logging
from collections import Counter
from typing import Any

from tfopt.artifacts import Examples
from tfopt.components.prepare_examples import sources
from tfopt.components.prepare_examples.places import remove, writing
from tfopt.components.prepare_examples.request import Request
from tfopt.components.prepare_examples.rows import Source
from tfopt.components.prepare_examples.schema import Schema, stored_shapes
from tfopt.components.prepare_examples.shards import MOST_LABELS, Layout, Shard
from tfopt.components.prepare_examples.summary import FeatureSummary
from tfopt.components.prepare_examples.survey import Rejects, Survey
from tfopt.errors import ComponentError

logger = logging.getLogger("tfopt")


def prepare(uri: str, examples: Examples, request: Request) -> None:
    """Write the examples, ``examples.json`` and the artifact's metadata.

    Raises:
        ComponentError: When the data cannot be used as asked. Nothing is left at a remote address then.
    """
    source = sources.inspect(uri, request)
    layout = Layout.plan(source, request)
    target = examples.uri.rstrip("/")
    logger.info("reading %d %s file(s)", len(source.files), source.format)
    from tfopt.components.prepare_examples import pipeline  # Beam is imported once the first look is passed

    try:
        survey, schema, shards = pipeline.run(source, layout, request, target)
        report = account(survey, schema, shards, source, request)
        with writing(f"{target}/examples.json") as stream:
            stream.write((json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())
    except BaseException:
        remove(f"{target}/{name}" for name in layout.names())
        raise
    counts, rejected = report["splits"], report["rejected"]["count"]
    logger.info("%d rows read, %d rejected; written: %s", survey.rows, rejected, counts)
    examples.metadata |= {
        "split_names": json.dumps(list(counts)),
        "counts": json.dumps(counts),
        "features": ", ".join(
            f"{name} {facts['dtype']}{facts['shape']}" for name, facts in list(report["features"].items())[:20]
        ),
        "label": source.label,
        "rejected": rejected,
    }


def account(
    survey: Survey, schema: Schema | tuple[str, str, str], shards: list[Shard], source: Source, request: Request
) -> dict[str, Any]:
    """Check that the examples are whole, and return the content of ``examples.json``.

    Raises:
        ComponentError: When a file is damaged, too many rows are unusable, a split is empty, or the runner lost rows.
        OSError: When a shard could not be written.
    """
    if survey.damage:
        raise ComponentError(*survey.damage[0][1])
    if not isinstance(schema, Schema):
        raise ComponentError(*schema)
    if failure := next((shard.failure for shard in shards if shard.failure), None):
        raise failure
    rejects = Rejects()
    for part in (survey.rejects, *(shard.rejects for shard in shards)):
        rejects.merge(part)
    counts = {name: sum(shard.written for shard in shards if shard.split == name) for name in request.splits.names}
    _check_conserved(survey, len(source.files), sum(counts.values()), rejects.count)
    _check_rejects(survey.rows, rejects, source, request)
    _check_splits(counts, request)
    return {
        "splits": counts,
        "features": _features(shards, schema, source, sum(counts.values())),
        "label": source.label,
        "label_counts": {name: _labels([shard for shard in shards if shard.split == name]) for name in counts},
        "classes": list(source.classes or schema.classes),
        "read": survey.rows,
        "rejected": {
            "count": rejects.count,
            "shown": [dict(zip(("file", "line", "reason"), place, strict=True)) for place in rejects.shown],
        },
        "seed": request.seed,
    }


def _check_conserved(survey: Survey, files: int, written: int, rejected: int) -> None:
    if (survey.files, survey.rows, written + rejected) != (files, survey.promised, survey.rows):
        raise ComponentError(
            f"{survey.files} of {files} files and {survey.promised} rows read, {survey.rows} rows surveyed, "
            f"{written} written, {rejected} rejected",
            "every row read to be written or rejected",
            "the Beam runner lost data: take another (DirectRunner is the default)",
        )


def _check_rejects(rows: int, rejects: Rejects, source: Source, request: Request) -> None:
    if not rows:
        raise ComponentError(f"{source.root}: no rows", "at least one row", "give data with content")
    if rejects.count > request.max_rejected * rows:
        fraction = rejects.count / rows
        shown = "".join(
            f"\n  {file}{f' line {line}' if line else ''}: {reason}" for file, line, reason in rejects.shown
        )
        enough = min(1.0, -(-rejects.count * 1000 // rows) / 1000)
        raise ComponentError(
            f"{source.root}: {rejects.count} of {rows} rows unusable ({fraction:.1%}):{shown}",
            f"at most {request.max_rejected:.1%} (max_rejected={request.max_rejected:g})",
            f"mend those rows, or pass max_rejected={enough:g} to leave them out",
        )


def _check_splits(counts: dict[str, int], request: Request) -> None:
    empty = [name for name, count in counts.items() if not count]
    if empty:
        weights = ", ".join(f"{name}:{weight}" for name, weight in request.splits.weights)
        raise ComponentError(
            f"split {', '.join(empty)} would be empty: {sum(counts.values())} rows over {weights}",
            "rows in every split",
            "give more rows, a larger weight to that split, or another seed",
        )


def _features(shards: list[Shard], schema: Schema, source: Source, examples: int) -> dict[str, Any]:
    shapes = stored_shapes(schema, source)
    found = {}
    for name, dtype in schema.types.items():
        total = FeatureSummary(dtype)
        for shard in shards:  # sorted by name, so that rounding is the same in every run
            if name in shard.features:
                total.merge(shard.features[name])
        found[name] = total.report(shapes.get(name), examples)
    return found


def _labels(shards: list[Shard]) -> dict[str, int]:
    """How often each class index occurs; nothing where the label is no class index or has very many values."""
    total: Counter[int] = Counter()
    for shard in shards:
        total.update(shard.labels)
    return {str(value): count for value, count in sorted(total.items())} if len(total) <= MOST_LABELS else {}
