"""The Beam pipeline: read every row, survey them all, then write them shard by shard in the types the survey found.

Only what every runner does right is used: integer keys, no tagged outputs, no `finish_bundle`, no Beam sink (see
`tfopt.beam`). Refusals travel as data, since an exception raised on a worker comes back as text.
"""

import pickle
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton

from tfopt.beam import pipeline
from tfopt.components.prepare_examples import sources
from tfopt.components.prepare_examples.places import reading, remove, writing
from tfopt.components.prepare_examples.request import Request
from tfopt.components.prepare_examples.rows import Source
from tfopt.components.prepare_examples.schema import Schema, decide
from tfopt.components.prepare_examples.shards import Layout, Shard, write_shard
from tfopt.components.prepare_examples.survey import Survey
from tfopt.errors import ComponentError

Refusal = tuple[str, str, str]
Result = tuple[Survey, Schema | Refusal, list[Shard]]


def run(source: Source, layout: Layout, request: Request, target: str) -> Result:
    """Run it. The result comes back through a file, the one way that every runner has."""
    answer = f"{target}/.result"
    try:
        with pipeline() as opened:
            rows = (
                opened
                | "files" >> beam.Create(list(source.files))
                | "spread" >> beam.Reshuffle()
                | "read" >> beam.FlatMap(sources.read, source).with_output_types(Any)
            )
            survey = (
                rows
                | "one" >> beam.WithKeys(0)
                | "survey" >> beam.CombinePerKey(Surveying(source)).with_output_types(tuple[int, Any])
                | "all" >> beam.Values().with_output_types(Any)
            )
            schema = AsSingleton(survey | "decide" >> beam.Map(_decided, source, request).with_output_types(Any))
            shards = (
                rows
                | "usable" >> beam.Filter(_is_usable)
                | "place" >> beam.Map(layout.place).with_output_types(tuple[int, Any])
                | "group" >> beam.GroupByKey()
                | "write" >> beam.Map(_written, schema, layout.names(), source, target).with_output_types(Any)
            )
            _ = survey | "answer" >> beam.Map(_answered, schema, AsList(shards), answer)
        with reading(answer) as stream:
            result: Result = pickle.loads(stream.read())
        return result
    finally:
        remove([answer])


class Surveying(beam.CombineFn):  # type: ignore[misc]
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
        for survey in accumulators:
            total.merge(survey)
        return total

    def extract_output(self, accumulator: Any) -> Any:
        """Return the survey itself."""
        return accumulator


def _decided(survey: Any, source: Any, request: Any) -> Any:
    try:
        return decide(survey, source, request)
    except ComponentError as error:
        return error.received, error.expected, error.fix


def _is_usable(row: Any) -> bool:
    return bool(row.usable)


def _written(keyed: Any, schema: Any, names: Any, source: Any, target: Any) -> Any:
    """A shard, unwritten when the data were refused already."""
    name = names[keyed[0]]
    return write_shard(name, keyed[1], schema, source, target) if isinstance(schema, Schema) else Shard(name)


def _answered(survey: Any, schema: Any, shards: Any, answer: Any) -> None:
    with writing(answer) as stream:
        stream.write(pickle.dumps((survey, schema, sorted(shards, key=lambda shard: shard.name))))
