"""The two Beam pipelines: survey every row; then write them shard by shard in the types that were found.

Each is one line from the files to a result: no side inputs, no tagged outputs, no `finish_bundle`, no Beam sink, and
integer keys, which is what all runners do right (`tfopt.data.beam_runner`). A result comes back through
a file, the one way that every runner has, and refusals travel as data, since an exception raised on a worker comes
back as text.
"""

import pickle
from collections.abc import Iterable
from typing import Any

import apache_beam as beam

from tfopt.components.prepare_examples.files import reading, remove, writing
from tfopt.components.prepare_examples.readers import detect as sources
from tfopt.components.prepare_examples.readers.base import Source
from tfopt.components.prepare_examples.schema import Schema
from tfopt.components.prepare_examples.shards import Layout, Shard, write_shard
from tfopt.components.prepare_examples.statistics import Survey
from tfopt.data.beam_runner import pipeline
from tfopt.errors import ComponentError

KEYED = tuple[int, Any]


def survey(source: Source, target: str) -> Survey:
    """Read everything once, and tell what it is. Of images that is known: one row a file."""
    if source.format == "images":
        count = len(source.files)
        return Survey(rows=count, promised=count, files=count)
    answer = f"{target}/.survey"
    with pipeline() as opened:
        _ = (
            _rows(opened, source)
            | "together" >> beam.WithKeys(0).with_output_types(KEYED)
            | "survey" >> beam.CombinePerKey(Surveying(source)).with_output_types(KEYED)
            | "answer" >> beam.Map(_answer, answer)
        )
    found: Survey = _answered(answer)
    return found


def write(source: Source, schema: Schema, layout: Layout, target: str) -> list[Shard]:
    """Read everything again, write each row to its shard, and report on the shards, sorted by name."""
    answer = f"{target}/.shards"
    with pipeline() as opened:
        _ = (
            _rows(opened, source)
            | "row" >> beam.Filter(_is_row)
            | "place" >> beam.Map(layout.place).with_output_types(KEYED)
            | "shards" >> beam.GroupByKey()
            | "write" >> beam.Map(_written, layout.names(), schema, source, target).with_output_types(Any)
            | "together" >> beam.WithKeys(0).with_output_types(KEYED)
            | "all" >> beam.GroupByKey()
            | "answer" >> beam.Map(_answer, answer)
        )
    return sorted(_answered(answer), key=lambda shard: str(shard.name))


class Surveying(beam.CombineFn):  # type: ignore[misc]  # Beam has no types
    """`Survey` as Beam combines it."""

    def __init__(self, source: Source) -> None:
        """Know how to read a row."""
        super().__init__()
        self.source = source

    def create_accumulator(self) -> Any:
        """Start empty."""
        return Survey()

    def add_input(self, mutable_accumulator: Any, element: Any) -> Any:
        """Take in a row."""
        mutable_accumulator.add(element, self.source)
        return mutable_accumulator

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        """Take in other surveys."""
        total = Survey()
        for part in accumulators:
            total.merge(part)
        return total

    def extract_output(self, accumulator: Any) -> Any:
        """Return the survey itself."""
        return accumulator


def _rows(opened: Any, source: Source) -> Any:
    files = opened | "files" >> beam.Create(list(source.files)) | "spread" >> beam.Reshuffle()
    return files | "read" >> beam.FlatMap(sources.read, source).with_output_types(Any)


def _is_row(row: Any) -> bool:
    return not row.damage and not row.end


def _written(keyed: Any, names: Any, schema: Any, source: Any, target: Any) -> Any:
    return write_shard(names[keyed[0]], keyed[1], schema, source, target)


def _answer(keyed: Any, answer: str) -> None:
    result = keyed[1] if isinstance(keyed[1], Survey) else list(keyed[1])
    with writing(answer) as stream:
        stream.write(pickle.dumps(result))


def _answered(answer: str) -> Any:
    try:
        with reading(answer) as stream:
            result = pickle.loads(stream.read())
    except ComponentError as error:
        raise ComponentError(
            "the Beam runner ended without a result",
            "a runner that writes to the output's address",
            "give workers on other machines an address that they share with this one",
        ) from error
    remove([answer])
    return result
