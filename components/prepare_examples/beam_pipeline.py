"""The two Beam pipelines: survey every row; then write the rows shard by shard with the resulting schema.

Each is a single chain from the files to a result: no side inputs, no tagged outputs, no `finish_bundle`, no Beam sink,
and integer keys. All runners execute this correctly (`tfopt.data.beam_runner`). A result is returned through a
`ResultFile`. Errors are passed as data, because an exception of a worker arrives as text.
"""

from collections.abc import Iterable
from typing import Any

import apache_beam as beam

from tfopt.components.prepare_examples.readers.base import Source
from tfopt.components.prepare_examples.readers.detect import read_rows
from tfopt.components.prepare_examples.schema import Schema
from tfopt.components.prepare_examples.shards import MOST_GROUPS, PARTS, Layout, Shard, join_parts, write_group
from tfopt.components.prepare_examples.survey.statistics import Survey
from tfopt.data.beam_runner import ResultFile, pipeline
from tfopt.storage import remote_files

KEYED = tuple[int, Any]


def survey_rows(source: Source, target: str) -> Survey:
    """Read all rows and return their survey. Images are not read: each file is one row."""
    if source.format == "images":
        count = len(source.files)
        return Survey(rows=count, expected_rows=count, files=count)
    result = ResultFile(f"{target}/.survey")
    with pipeline() as opened:
        _ = (
            opened
            | "files" >> beam.Create(list(source.files))  # it spreads several files over the workers
            | "survey" >> beam.Map(_survey_file, source).with_output_types(Any)
            | "together" >> beam.WithKeys(0).with_output_types(KEYED)
            | "merge" >> beam.CombinePerKey(_merge_surveys).with_output_types(KEYED)
            | "result" >> beam.MapTuple(lambda _, survey: result.write(survey))
        )
    survey: Survey = result.take()
    return survey


def write_shards(source: Source, schema: Schema, layout: Layout, target: str) -> list[Shard]:
    """Read all rows again, write each row to its shard, and return the shards sorted by name."""
    result = ResultFile(f"{target}/.shards")
    try:
        with pipeline() as opened:
            _ = (
                opened
                | "files" >> beam.Create(list(source.files))
                | "read" >> beam.FlatMap(read_rows, source).with_output_types(Any)
                | "row" >> beam.Filter(lambda row: not row.damage and not row.end)
                | "assign" >> beam.Map(layout.assign).with_output_types(KEYED)
                | "groups" >> beam.GroupByKey()
                | "write" >> beam.Map(_write, layout, schema, source, target).with_output_types(KEYED)
                | "parts" >> beam.GroupByKey()
                | "join" >> beam.MapTuple(lambda _, parts: join_parts(parts, target)).with_output_types(Any)
                | "together" >> beam.WithKeys(0).with_output_types(KEYED)
                | "all" >> beam.GroupByKey()
                | "result" >> beam.MapTuple(lambda _, shards: result.write(list(shards)))
            )
    finally:
        if any(count > 1 for count in layout.ranges.values()):
            remote_files.remove(f"{target}/{PARTS}")
    return sorted(result.take(), key=lambda shard: str(shard.name))


def _survey_file(file: Any, source: Any) -> Any:
    survey = Survey()
    for row in read_rows(file, source):
        survey.add(row, source)
    return survey


def _merge_surveys(surveys: Iterable[Any]) -> Any:
    total = Survey()
    for survey in surveys:
        total.merge(survey)
    return total


def _write(keyed: Any, layout: Any, schema: Any, source: Any, target: Any) -> Any:
    group, rows = keyed
    return group // MOST_GROUPS, write_group(layout.started(group), rows, schema, source, target)
