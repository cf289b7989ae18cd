"""Content of ``examples.json``, and the metadata of the examples artifact."""

import json
from collections import Counter

from tfopt.components.prepare_examples.parameters import Settings
from tfopt.components.prepare_examples.readers.base import Source
from tfopt.components.prepare_examples.schema import Schema, stored_shapes
from tfopt.components.prepare_examples.shards import MOST_LABELS, Shard
from tfopt.components.prepare_examples.survey.column_checks import one_class_notes
from tfopt.components.prepare_examples.survey.feature_summary import FeatureSummary
from tfopt.components.prepare_examples.survey.statistics import Rejects, Survey
from tfopt.reports.examples_manifest import (
    ExamplesManifest,
    FeatureStatistics,
    RejectedRow,
    RejectedRows,
    SparseParts,
)


def build_manifest(
    survey: Survey, rejects: Rejects, schema: Schema, shards: list[Shard], source: Source, settings: Settings
) -> ExamplesManifest:
    """Return the content of ``examples.json``. It has no path, time or runner, so equal data give equal files."""
    written = count_examples(shards, settings)
    classes = list(source.classes or schema.classes)
    label_counts = {name: _label_counts([shard for shard in shards if shard.split == name]) for name in written}
    as_float = [name for name, dtype in schema.columns.items() if dtype == "float32" or schema.pack]
    notes = [*survey.checks.notes(source.label, as_float), *one_class_notes(label_counts, classes)]
    return ExamplesManifest(
        splits=written,
        features=_features(shards, schema, source, sum(written.values())),
        label=source.label,
        label_counts=label_counts,
        classes=classes,
        packed={schema.pack.name: [name for name in schema.columns if name != source.label]} if schema.pack else None,
        notes=notes or None,
        read=survey.rows,
        rejected=RejectedRows(rejects.count, [RejectedRow(*reject) for reject in rejects.shown]),
        dropped=sum(shard.dropped for shard in shards) if settings.missing == "drop" else None,
        seed=settings.seed,
    )


def artifact_metadata(manifest: ExamplesManifest) -> dict[str, str | int]:
    """Return the artifact's metadata as plain values; standard TFX components read ``split_names``."""
    splits = manifest.splits or {}
    features = [f"{name} {facts.dtype}{facts.shape}" for name, facts in (manifest.features or {}).items()]
    return {
        "split_names": json.dumps(list(splits)),
        "counts": json.dumps(splits),
        "features": ", ".join(features[:20]) + (", …" if len(features) > 20 else ""),
        "label": manifest.label or "",
        "rejected": manifest.rejected.count if manifest.rejected else 0,
        "dropped": manifest.dropped or 0,
    }


def count_examples(shards: list[Shard], settings: Settings) -> dict[str, int]:
    """Return the number of examples of each split."""
    return {
        name: sum(shard.written for shard in shards if shard.split == name) for name in settings.parsed_splits.names
    }


def _features(shards: list[Shard], schema: Schema, source: Source, examples: int) -> dict[str, FeatureStatistics]:
    shapes = stored_shapes(schema, source)
    features = {}
    for name, dtype in schema.types.items():
        total = FeatureSummary(dtype)
        for shard in shards:  # sorted by name, so that rounding is the same in every run
            if name in shard.features:
                total.merge(shard.features[name])
        features[name] = total.statistics(shapes.get(name), examples)
    for sparse in schema.sparse:
        features[sparse.name] = FeatureStatistics(
            dtype=schema.types[sparse.values],
            shape=[sparse.size],
            missing=0,
            sparse=SparseParts(sparse.positions, sparse.values),
        )
    return features


def _label_counts(shards: list[Shard]) -> dict[str, int]:
    """Return the count of each class index; empty if the label is no class index or has too many values."""
    total: Counter[int] = Counter()
    for shard in shards:
        total.update(shard.labels)
    return {str(value): count for value, count in sorted(total.items())} if len(total) <= MOST_LABELS else {}
