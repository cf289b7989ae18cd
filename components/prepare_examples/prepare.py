"""Preparation of examples: inspect files, survey rows, write shards, check that no row is lost, describe them."""

import json
import logging

from tfopt.artifacts import Examples
from tfopt.components.prepare_examples.parameters import Settings
from tfopt.components.prepare_examples.readers.base import Source
from tfopt.components.prepare_examples.readers.detect import inspect_source
from tfopt.components.prepare_examples.schema import Schema, decide_schema
from tfopt.components.prepare_examples.shards import MOST_LABELS, Layout, Shard, add_up
from tfopt.components.prepare_examples.survey.column_checks import one_class_notes
from tfopt.components.prepare_examples.survey.statistics import NO_VALUES, Rejects, Survey
from tfopt.data.feature_schema import MANIFEST
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.measurement.evidence import check_goals, describe_visible_loss, expected_main_metric
from tfopt.reports import examples_manifest
from tfopt.reports.report_schema import dump
from tfopt.storage import remote_files

log = logging.getLogger(__name__)


def prepare(uri: str, examples: Examples, settings: Settings) -> None:
    """Write the examples, ``examples.json`` and the artifact's metadata.

    Raises:
        ComponentError: If the data do not fit the settings. The files at a remote address are removed then.
        OSError: If a file cannot be written.
    """
    source = inspect_source(uri, settings)
    layout = Layout.plan(source, settings)
    target = examples.uri.rstrip("/")
    from tfopt.components.prepare_examples.beam_pipeline import survey_rows, write_shards  # imports Apache Beam

    log.info("reading %d %s file%s", len(source.files), source.format, "s" * (len(source.files) > 1))
    survey = survey_rows(source, target)
    check_survey(survey, source, settings)
    schema = decide_schema(survey, source, settings)
    log.info("writing %d rows", survey.rows)
    try:
        shards = write_shards(source, schema, layout, target)
        rejects = check_shards(survey, shards, source, settings)
        manifest = _build_manifest(survey, schema, shards, source, settings)
        with remote_files.open_file(f"{target}/{MANIFEST}", "wb") as stream:
            stream.write((json.dumps(dump(manifest), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())
    except BaseException:
        for name in layout.names():
            remote_files.remove(f"{target}/{name}")
        raise
    visible = _check_evidence(manifest, settings)
    written = ", ".join(f"{name} {count}" for name, count in (manifest.splits or {}).items())
    dropped = f", {manifest.dropped} dropped" if manifest.dropped else ""
    log.info("written: %s; %d rows rejected%s", written, rejects.count, dropped)
    if visible:
        log.info("%s", visible)
    for note in manifest.notes or ():
        log.warning("note: %s", note)
    examples.metadata |= _artifact_metadata(manifest)


def _check_evidence(manifest: examples_manifest.ExamplesManifest, settings: Settings) -> str | None:
    """Return what the evaluated split can show; raise ComponentError if that is too little for a goal on accuracy."""
    splits = manifest.splits or {}
    split = next((name for name in ("test", "eval") if name in splits), None)
    if split is None:
        return None
    has_classes = any((manifest.label_counts or {}).values())
    if settings.confidence == "interval":
        check_goals(settings.goals, split, splits[split], has_classes and not settings.metrics)
    metric = expected_main_metric(settings.metrics, has_classes=has_classes)
    return f"split {split}: {describe_visible_loss(splits[split], 1, metric)}"


def check_survey(survey: Survey, source: Source, settings: Settings) -> None:
    """Raise ComponentError if a file is damaged, rows were lost, too many are unusable, or values are missing."""
    if survey.damage:
        raise ComponentError(*survey.damage[0][1])
    if (survey.files, survey.rows) != (len(source.files), survey.expected_rows):
        raise _lost_rows(
            f"{survey.files} of {len(source.files)} files and {survey.rows} of {survey.expected_rows} rows surveyed"
        )
    if not survey.rows:
        raise ComponentError(f"{source.root}: no rows", "at least one row", "give data with content")
    check_rejects(survey.rows, survey.rejects, source, settings)
    _check_declared(survey, source)
    _check_missing(survey, source, settings)


def check_shards(survey: Survey, shards: list[Shard], source: Source, settings: Settings) -> Rejects:
    """Return all rejected rows; raise ComponentError if rows were lost, too many were rejected, or a split is empty."""
    total = add_up(shards)
    if total.written + total.rejects.count + total.dropped != survey.rows:
        left_out = f"{total.dropped} dropped and " if total.dropped else "and "
        raise _lost_rows(f"{survey.rows} rows read, {total.written} written {left_out}{total.rejects.count} rejected")
    check_rejects(survey.rows, total.rejects, source, settings)
    _check_splits(shards, settings)
    return total.rejects


def _lost_rows(received: str) -> ComponentError:
    fix = "the Beam runner lost data: use another one (DirectRunner is the default)"
    return ComponentError(received, "every row to be written or rejected", fix)


def check_rejects(rows: int, rejects: Rejects, source: Source, settings: Settings) -> None:
    """Raise ComponentError if too many rows are unusable."""
    if rejects.count > settings.max_rejected * rows:
        fraction = rejects.count / rows
        shown = "".join(
            f"\n  {file}{f' line {line}' if line else ''}: {reason}" for file, line, reason in rejects.shown
        )
        sufficient = min(1.0, -(-rejects.count * 1000 // rows) / 1000)
        raise ComponentError(
            f"{source.root}: {rejects.count} of {rows} rows unusable ({fraction:.1%}):{shown}",
            f"at most {settings.max_rejected:.1%} (max_rejected={settings.max_rejected:g})",
            f"fix those rows, or pass max_rejected={sufficient:g} to leave them out",
        )


def _check_declared(survey: Survey, source: Source) -> None:
    kinds = survey.kinds()
    absent = [name for name in source.declared if source.format == "jsonl" and not sum(kinds.get(name, NO_VALUES)[1:])]
    if absent:
        others = [name for name in kinds if name not in source.declared]
        received = f"columns: no object has a value of {absent[0]!r}"
        raise ComponentError(received, "keys of the objects", nearest(absent[0], others))


def _check_missing(survey: Survey, source: Source, settings: Settings) -> None:
    first = sorted((*location[:2], name) for name, location in survey.first_missing.items())
    if settings.missing == "error" and first:
        file, line, name = first[0]
        raise ComponentError(
            f"{source.root}: {survey.incomplete} of {survey.rows} rows lack a value, the first is {name!r} in "
            f"{file} line {line}",
            "a value in every column (missing='error')",
            "add the values, or pass missing='omit', 'default' or 'drop'",
        )
    lists = [location for location in first if location[2] in survey.lists]
    if settings.missing == "default" and lists:
        file, line, name = lists[0]
        received = f"missing='default': {name!r} is a column of lists, and missing in {file} line {line}"
        expected = "a list in every row, because a missing list has no default"
        raise ComponentError(received, expected, "write the lists, or pass missing='omit' or 'drop'")


def _check_splits(shards: list[Shard], settings: Settings) -> None:
    filled = {shard.split for shard in shards if shard.written}
    empty = [name for name in settings.parsed_splits.names if name not in filled]
    if empty:
        weights = ", ".join(f"{name}:{weight}" for name, weight in settings.parsed_splits.weights)
        raise ComponentError(
            f"split {', '.join(empty)} would be empty: {sum(shard.written for shard in shards)} rows over {weights}",
            "rows in every split",
            "give more rows, a larger weight to that split, or another seed",
        )


def _build_manifest(
    survey: Survey, schema: Schema, shards: list[Shard], source: Source, settings: Settings
) -> examples_manifest.ExamplesManifest:
    """Return the content of ``examples.json``. It has no path, time or runner, so equal data give equal files."""
    total = add_up(shards)
    splits = {name: add_up(shard for shard in shards if shard.split == name) for name in settings.parsed_splits.names}
    classes = list(source.classes or schema.classes)
    label_counts = {}
    for name, split in splits.items():  # without counts if the label is no class index, or has too many values
        counts = sorted(split.labels.items()) if len(split.labels) <= MOST_LABELS else ()
        label_counts[name] = {str(value): count for value, count in counts}
    as_float = [name for name, dtype in schema.columns.items() if dtype == "float32" or schema.pack]
    notes = [*survey.checks.notes(source.label, as_float), *one_class_notes(label_counts, classes)]
    rejected = [examples_manifest.RejectedRow(*reject) for reject in total.rejects.shown]
    return examples_manifest.ExamplesManifest(
        splits={name: split.written for name, split in splits.items()},
        features=_features(total, schema, source),
        label=source.label,
        label_counts=label_counts,
        classes=classes,
        packed={schema.pack.name: [name for name in schema.columns if name != source.label]} if schema.pack else None,
        notes=notes or None,
        read=survey.rows,
        rejected=examples_manifest.RejectedRows(total.rejects.count, rejected),
        dropped=total.dropped if settings.missing == "drop" else None,
        seed=settings.seed,
    )


def _artifact_metadata(manifest: examples_manifest.ExamplesManifest) -> dict[str, str | int]:
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


def _features(total: Shard, schema: Schema, source: Source) -> dict[str, examples_manifest.FeatureStatistics]:
    shapes = {schema.pack.name: schema.pack.shape} if schema.pack else schema.renamed(source.shapes)
    features = {name: total.features[name].statistics(shapes.get(name), total.written) for name in schema.types}
    for sparse in schema.sparse:
        features[sparse.name] = examples_manifest.FeatureStatistics(
            dtype=schema.types[sparse.values],
            shape=[sparse.size],
            missing=0,
            sparse=examples_manifest.SparseParts(sparse.positions, sparse.values),
        )
    return features
