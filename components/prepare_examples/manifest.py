"""Content of ``examples.json``, and the metadata of the examples artifact."""

import json

from tfopt.components.prepare_examples.parameters import Settings
from tfopt.components.prepare_examples.readers.base import Source
from tfopt.components.prepare_examples.schema import Schema
from tfopt.components.prepare_examples.shards import MOST_LABELS, Shard, add_up
from tfopt.components.prepare_examples.survey.column_checks import one_class_notes
from tfopt.components.prepare_examples.survey.statistics import Survey
from tfopt.reports.examples_manifest import (
    ExamplesManifest,
    FeatureStatistics,
    RejectedRow,
    RejectedRows,
    SparseParts,
)


def build_manifest(
    survey: Survey, schema: Schema, shards: list[Shard], source: Source, settings: Settings
) -> ExamplesManifest:
    """Return the content of ``examples.json``. It has no path, time or runner, so equal data give equal files."""
    total = add_up(shards)
    splits = {name: add_up(shard for shard in shards if shard.split == name) for name in settings.parsed_splits.names}
    classes = list(source.classes or schema.classes)
    label_counts = {name: _label_counts(split) for name, split in splits.items()}
    as_float = [name for name, dtype in schema.columns.items() if dtype == "float32" or schema.pack]
    notes = [*survey.checks.notes(source.label, as_float), *one_class_notes(label_counts, classes)]
    return ExamplesManifest(
        splits={name: split.written for name, split in splits.items()},
        features=_features(total, schema, source),
        label=source.label,
        label_counts=label_counts,
        classes=classes,
        packed={schema.pack.name: [name for name in schema.columns if name != source.label]} if schema.pack else None,
        notes=notes or None,
        read=survey.rows,
        rejected=RejectedRows(total.rejects.count, [RejectedRow(*reject) for reject in total.rejects.shown]),
        dropped=total.dropped if settings.missing == "drop" else None,
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


def _features(total: Shard, schema: Schema, source: Source) -> dict[str, FeatureStatistics]:
    shapes = {schema.pack.name: schema.pack.shape} if schema.pack else schema.renamed(source.shapes)
    features = {name: total.features[name].statistics(shapes.get(name), total.written) for name in schema.types}
    for sparse in schema.sparse:
        features[sparse.name] = FeatureStatistics(
            dtype=schema.types[sparse.values],
            shape=[sparse.size],
            missing=0,
            sparse=SparseParts(sparse.positions, sparse.values),
        )
    return features


def _label_counts(split: Shard) -> dict[str, int]:
    """Return the count of each class index; empty if the label is no class index or has too many values."""
    if len(split.labels) > MOST_LABELS:
        return {}
    return {str(value): count for value, count in sorted(split.labels.items())}
