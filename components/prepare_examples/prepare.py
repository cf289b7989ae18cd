"""From the request to the examples: a first look, the survey, the writing, and the account of both."""

import json
import logging

from tfopt.artifacts import Examples
from tfopt.components.prepare_examples import report
from tfopt.components.prepare_examples.files import remove, writing
from tfopt.components.prepare_examples.readers import detect as sources
from tfopt.components.prepare_examples.readers.base import Source
from tfopt.components.prepare_examples.request import Request
from tfopt.components.prepare_examples.schema import decide
from tfopt.components.prepare_examples.shards import Layout, Shard
from tfopt.components.prepare_examples.statistics import Rejects, Survey
from tfopt.data.feature_schema import MANIFEST
from tfopt.errors import ComponentError

logger = logging.getLogger("tfopt")


def prepare(uri: str, examples: Examples, request: Request) -> None:
    """Write the examples, ``examples.json`` and the artifact's metadata.

    Raises:
        ComponentError: When the data cannot be used as asked. Nothing is left at a remote address then.
        OSError: When something could not be written.
    """
    source = sources.inspect(uri, request)
    layout = Layout.plan(source, request)
    target = examples.uri.rstrip("/")
    from tfopt.components.prepare_examples import beam_pipeline as pipeline

    logger.info("reading %d %s file%s", len(source.files), source.format, "s" * (len(source.files) > 1))
    survey = pipeline.survey(source, target)
    check_survey(survey, source, request)
    schema = decide(survey, source, request)
    logger.info("writing %d rows", survey.rows)
    try:
        shards = pipeline.write(source, schema, layout, target)
        rejects = check_shards(survey, shards, source, request)
        content = report.content(survey, rejects, schema, shards, source, request)
        with writing(f"{target}/{MANIFEST}") as stream:
            stream.write((json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())
    except BaseException:
        remove(f"{target}/{name}" for name in layout.names())
        raise
    written = ", ".join(f"{name} {count}" for name, count in content["splits"].items())
    logger.info("written: %s; %d rows rejected", written, rejects.count)
    examples.metadata |= report.metadata(content)


def check_survey(survey: Survey, source: Source, request: Request) -> None:
    """Raise ComponentError when a file is damaged, the runner lost rows, or too few are left to go on."""
    if survey.damage:
        raise ComponentError(*survey.damage[0][1])
    if (survey.files, survey.rows) != (len(source.files), survey.promised):
        raise _lost(f"{survey.files} of {len(source.files)} files and {survey.rows} of {survey.promised} rows surveyed")
    if not survey.rows:
        raise ComponentError(f"{source.root}: no rows", "at least one row", "give data with content")
    _check_rejects(survey.rows, survey.rejects, source, request)


def check_shards(survey: Survey, shards: list[Shard], source: Source, request: Request) -> Rejects:
    """Return all rejected rows, once it is sure that every row was written or rejected and no split is empty.

    Raises:
        ComponentError: When rows were lost or rejected beyond the limit, or a split is empty.
    """
    rejects = Rejects()
    for shard in shards:
        rejects.merge(shard.rejects)
    written = sum(shard.written for shard in shards)
    if written + rejects.count != survey.rows:
        raise _lost(f"{survey.rows} rows read, {written} written and {rejects.count} rejected")
    _check_rejects(survey.rows, rejects, source, request)
    _check_splits(shards, request)
    return rejects


def _lost(received: str) -> ComponentError:
    return ComponentError(
        received,
        "every row to be written or rejected",
        "the Beam runner lost data: take another (DirectRunner is the default)",
    )


def _check_rejects(rows: int, rejects: Rejects, source: Source, request: Request) -> None:
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


def _check_splits(shards: list[Shard], request: Request) -> None:
    counts = report.counts(shards, request)
    empty = [name for name, count in counts.items() if not count]
    if empty:
        weights = ", ".join(f"{name}:{weight}" for name, weight in request.splits.weights)
        raise ComponentError(
            f"split {', '.join(empty)} would be empty: {sum(counts.values())} rows over {weights}",
            "rows in every split",
            "give more rows, a larger weight to that split, or another seed",
        )
