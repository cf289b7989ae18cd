"""Inputs and answers of both samples: the reference and the served requests, in a process of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tfopt import runtimes
from tfopt.artifacts import Examples, Model
from tfopt.artifacts.tensor_spec import TensorSpec, fixed_batch
from tfopt.components.check_drift.activation_levels import open_levels
from tfopt.components.check_drift.answers import Answers, Outputs
from tfopt.components.check_drift.columns import Rows, input_rows
from tfopt.components.check_drift.intervals import Floats
from tfopt.components.check_drift.parameters import DriftTest
from tfopt.data.batches import Batch, parse_records, sample_records
from tfopt.data.sample_inputs import count_records, split_batches
from tfopt.errors import ComponentError
from tfopt.reports.drift_report import ComparedSample
from tfopt.runtimes import Runtime
from tfopt.runtimes.preprocessed import PreprocessedRuntime
from tfopt.serving.recordings.recorded_requests import Selection, read_recording


@dataclass
class Sample:
    """Inputs, answers and 8-bit levels of the records of a sample."""

    facts: ComparedSample
    rows: dict[str, Rows] = field(default_factory=dict)
    answers: Answers = field(default_factory=Answers)
    parent_answers: Answers = field(default_factory=Answers)
    levels: dict[str, Floats] = field(default_factory=dict)  # by activation, the share at the ends for each record
    lacking: dict[str, int] = field(default_factory=dict)  # by input, the number of records without it


@dataclass(frozen=True)
class Samples:
    """Both samples; ``has_levels`` is True if the served file has 8-bit ranges that are read."""

    reference: Sample
    served: Sample
    has_levels: bool


def compare_samples(
    model: Model, recording: Path, reference: Examples, parent: Model | None, test: DriftTest
) -> Samples:
    """Read both samples, and run the models on them.

    Raises:
        ComponentError: If one cannot be read, has too few records, or a model cannot be run on it.
    """
    with runtimes.load(model) as served:
        specs = served.inputs
        requests = read_recording(recording, specs, model.signature, Selection(test.limit, may_lack_inputs=True))
        whole = [request for request in requests.requests if not request.missing]
        lacking: dict[str, int] = {}
        for request in requests.requests:
            for name in request.missing:
                lacking[name] = lacking.get(name, 0) + request.records
        facts = ComparedSample(requests.source, len(requests.requests), sum(request.records for request in whole))
        batches = [_read_reference(reference, specs, test), [request.inputs for request in whole]]
        drawn = sum(count_records(batch, specs) for batch in batches[0])
        samples = [
            Sample(ComparedSample(f"examples, split {test.split!r}", drawn, drawn)),
            Sample(facts, lacking=lacking),
        ]
        for sample, read, where in zip(samples, batches, ("the reference", "the recording"), strict=True):
            _check_count(sample.facts.records + max(sample.lacking.values(), default=0), test.min_records, where)
            sample.rows, sample.answers = input_rows(read, specs), _answer(served, read)
        with open_levels(model) as count:
            for sample, read in zip(samples, batches, strict=True):
                if count is None:
                    break
                records = [record for batch in read for record in split_batches(batch, specs, 1)]
                shares = [count(_core_inputs(served, record)) for record in records]
                names = shares[0] if shares else ()
                sample.levels = {name: np.array([row[name] for row in shares]) for name in names}
    if parent is not None:
        with runtimes.load(parent) as loaded:
            for sample, read in zip(samples, batches, strict=True):
                sample.parent_answers = _answer(loaded, read)
    return Samples(samples[0], samples[1], has_levels=count is not None)


def _check_count(records: int, fewest: int, where: str) -> None:
    if records < fewest:
        fix = "record more requests, such as those of a day or a week; pass a larger split; or lower min_records"
        raise ComponentError(f"{where}: {records} records", f"at least min_records={fewest} to compare", fix)


def _read_reference(reference: Examples, specs: Mapping[str, TensorSpec], test: DriftTest) -> list[Batch]:
    files = reference.split(test.split)
    records = sample_records(files, count=test.limit, seed=test.seed)
    if not records:
        return []
    batch = parse_records(records, specs, where=f"split {test.split!r}", files=files)
    return list(split_batches(batch, specs, fixed_batch(specs) or 256))


def _answer(runtime: Runtime, batches: Sequence[Batch]) -> Answers:
    """Return the answers to all records."""
    results: list[Outputs] = [runtime.run(batch) for batch in batches]
    names = runtime.outputs if results else ()
    return Answers({name: np.concatenate([np.asarray(one[name]) for one in results]) for name in names})


def _core_inputs(runtime: Runtime, record: Batch) -> Batch:
    """Return the inputs of the file that has the activations: those after a preprocessing, if there is one."""
    return dict(runtime.core_inputs(record)) if isinstance(runtime, PreprocessedRuntime) else record
