"""Compare the outputs of a rewritten model with its parent's, signature by signature."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np

from tfopt.artifacts import Examples, Model
from tfopt.artifacts.model_card import ParityFacts, Verification
from tfopt.artifacts.models import SERVING_DEFAULT
from tfopt.artifacts.saved_model_proto import DTYPES, read_meta_graph
from tfopt.artifacts.tensor_spec import batched_tensors, fixed_batch
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import (
    count_records,
    draw_inputs,
    formatted_texts,
    split_batches,
    with_sizes_of,
    with_words,
)
from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError
from tfopt.formatting import data_size
from tfopt.graph.frozen_model import Frozen
from tfopt.graph_checks.frozen_runtime import FrozenRuntime
from tfopt.graph_checks.special_values import (
    CRASHING,
    LARGEST,
    MANY,
    OUT_OF_MEMORY,
    Probe,
    contains_nan,
    difference,
    outcome_of,
    record_probes,
    working_records,
)
from tfopt.graph_def import nodes
from tfopt.measurement.comparison_budget import BYTES, ComparisonBudget
from tfopt.measurement.parity import compare, without_tensor_float_32
from tfopt.runtimes import Arrays, Runtime
from tfopt.saved_models.state import changes_state

Loader = Callable[[str], AbstractContextManager[Runtime]]  # a signature of a model by its key

RUN_SECONDS = 5.0  # of one run of all records: a rewriter makes dozens of them
WARM_UP_SECONDS = 60.0  # of the first records, by which the others are measured
RECORDS, BATCH = 24, 12  # batches of the size of those with special values, so that XLA compiles one program for both
TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2}  # parent and child both round every result to this dtype
FLOAT32_TOLERANCE = 1e-4


class Comparison:
    """Outputs of a parent on fixed inputs, with which the outputs of its children are compared.

    Attributes:
        source: Description of the inputs.
        skipped: Keys of the signatures that are not compared, with the reason.
    """

    @without_tensor_float_32()
    def __init__(
        self,
        keys: Iterable[str],
        parent: Loader,
        examples: Examples | None,
        signature: str = SERVING_DEFAULT,
        *,
        special: bool = False,
        stateful: bool = False,
        equal: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Run the parent on each signature and store its outputs.

        Args:
            keys: The signatures.
            parent: Function that loads a signature by its key.
            examples: Inputs for one signature. Other signatures, and all if this is None, get random inputs.
            signature: The signature that the examples are for.
            special: Compare special values too (see `special_values` and `why_no_special_values`). Both models must be
                `FrozenRuntime`: when TensorFlow serves a model, Grappler rewrites it.
            stateful: The model changes its state while it serves, or has random outputs. The parent is loaded and run
                a second time, and outputs that differ then are not compared.
            equal: Signatures to leave out, and for each the one that computes the same.

        Raises:
            ComponentError: If that signature of the parent does not exist, cannot be run or returns NaN.
        """
        self.source = ""
        self.skipped = {key: f"it computes the same as {other}" for key, other in equal.items()}
        self._recorded: dict[str, _RecordedOutputs] = {}
        self._probes: dict[str, list[Probe]] = {}
        self._random: set[str] = set()
        # The examples of the first one have sizes for the inputs of the others.
        keys = sorted(set(keys) - set(equal), key=lambda key: (key != signature, key))
        if signature != SERVING_DEFAULT and signature not in keys:
            raise ComponentError(f"no signature {signature!r}", "one of its signatures", nearest(signature, keys))
        for key in keys:
            try:
                with parent(key) as runtime:
                    sizes = self._recorded[signature].batches[0] if signature in self._recorded else {}
                    own = examples if key == signature else None
                    self._recorded[key], source, limit = _record_outputs(key, runtime, own, sizes)
                    if special and isinstance(runtime, FrozenRuntime):
                        probes = record_probes(runtime, key, self._recorded[key].batches[0], limit)
                        self._probes[key] = [*self._recorded[key].failures, *probes]
                if stateful:
                    self._run_again(key, parent)
            except ComponentError as error:
                if key == signature:
                    raise
                self.skipped[key] = error.received
            else:
                self.source = self.source or source
        if not self._recorded:
            reasons = "; ".join(f"{key}: {reason}" for key, reason in self.skipped.items())
            raise ComponentError(
                reasons, "a signature that can be run here", "export serving_default with plain tensors"
            )

    @property
    def signatures(self) -> list[str]:
        """The keys of the signatures that are compared."""
        return list(self._recorded)

    def recorded(self, key: str) -> Runtime:
        """Return the inputs and outputs of a signature, without the parent."""
        return self._recorded[key]

    def errors(self, child: Loader) -> dict[str, ParityFacts]:
        """Return the parity facts of each output of a child by ``signature/output``; see `parity.compare`."""
        facts: dict[str, ParityFacts] = {}
        for key in self._recorded:
            with child(key) as runtime:
                facts |= self._errors(key, runtime)
        return facts

    def verify(self, child: Loader, tolerance: float, *, what: str, fix: str) -> Verification:
        """Return the entry ``verified`` of the model card of a child.

        Raises:
            ComponentError: If an output of ``what`` model differs by more than the tolerance, a fraction of its range.
        """
        outputs = self.errors(child)
        name, error = largest_error(outputs)
        if not error <= tolerance:
            received = f"output {name!r} of the {what} model differs by {error:.2g} of its range"
            raise ComponentError(received, f"at most {tolerance:g}", fix)
        return {"inputs": self.source, "tolerance": tolerance, "outputs": outputs, "not_compared": self.skipped}

    @without_tensor_float_32()
    def check(self, child: Loader, tolerance: float, *, rounds: bool = False, unchecked: bool = False) -> float:
        """Return the largest error of a child on ordinary values, after a comparison on special ones.

        Args:
            child: Function that loads a signature by its key.
            tolerance: Allowed error of an output, as a fraction of its range.
            rounds: The child rounds at other places: with the largest floats, an intermediate result may overflow in
                one of the models only. The outputs of the child become the expected ones for these inputs.
            unchecked: The child has no checks of values: where the parent fails, its outputs become the expected ones.

        Raises:
            ComponentError: If an output differs.
        """
        largest = 0.0
        replaced: list[tuple[Probe, Any]] = []
        for key in self._recorded:
            with child(key) as runtime:
                errors = self._errors(key, runtime)
                largest = max([largest, *(_relative_error(error) for error in errors.values())])
                if not largest <= tolerance:
                    raise ComponentError(f"an output differs by {largest:.2g} of its range", f"{tolerance:g}", "")
                ranges = {name: error["output_range"] or 0.0 for name, error in errors.items()}
                ranges = {name.removeprefix(f"{key}/"): spread for name, spread in ranges.items()}
                for probe in self._probes.get(key, ()):
                    outcome = outcome_of(runtime, probe.arrays)
                    if (rounds and probe.kind == LARGEST) or (unchecked and isinstance(probe.outcome, str)):
                        replaced.append((probe, outcome))
                    elif reason := difference(probe, outcome, tolerance, ranges):
                        expected = "the outputs of the parent"
                        raise ComponentError(reason, expected, "pass fast_math to ignore these values")
        for probe, outcome in replaced:
            probe.outcome = outcome
        return largest

    @without_tensor_float_32()
    def special_differences(self, child: Loader, kinds: Collection[str], tolerance: float = float("inf")) -> list[str]:
        """Return how the outputs of a child differ on special values: one line for each signature and kind.

        Args:
            child: Function that loads a signature by its key.
            kinds: The kinds of special values to compare.
            tolerance: Allowed error of finite values, as a fraction of the largest one; infinity compares only where
                values are NaN, infinite or finite.
        """
        lines: dict[tuple[str, str], str] = {}
        for key, probes in self._probes.items():
            recorded = self._recorded[key]
            largest = {name: recorded.max_abs(name) for name in recorded.outputs}
            with child(key) as runtime:
                for probe in probes:
                    place = (key, probe.kind)
                    if probe.kind in kinds and place not in lines and isinstance(probe.outcome, dict):
                        reason = difference(probe, outcome_of(runtime, probe.arrays), tolerance, largest)
                        lines |= {place: f"{key}: {reason}"} if reason else {}
        return list(lines.values())

    def _errors(self, key: str, child: Runtime) -> dict[str, ParityFacts]:
        parent = self._recorded[key]
        facts: dict[str, ParityFacts] = {
            f"{key}/{name}": {**parity.facts(), "relative_error": parity.rewrite_error}
            for name, parity in compare(parent, child, parent.batches).items()
        }
        return {name: one for name, one in facts.items() if name not in self._random}

    def _run_again(self, key: str, parent: Loader) -> None:
        """Load the parent again and run it on the recorded inputs only; leave out outputs that differ next time."""
        with parent(key) as runtime:
            self._recorded[key] = _RecordedOutputs(runtime, self._recorded[key].batches)
        with parent(key) as runtime:
            errors = self._errors(key, runtime)
        random = {name for name, facts in errors.items() if not _relative_error(facts) <= FLOAT32_TOLERANCE}
        if random == set(errors):
            del self._recorded[key]
            received = f"{key}: every output differs from run to run"
            raise ComponentError(received, "an output to compare the optimized model by", "seed its random operations")
        self._random |= random
        self.skipped |= dict.fromkeys(random, "it differs from run to run of the model")


def equal_signatures(frozen: Frozen, first: str) -> dict[str, str]:
    """Return signatures that have the nodes of another one, and that one for each: the ``first`` if possible."""
    distinct: dict[str, str] = {}
    equal = {}
    for key in sorted(frozen.signatures, key=lambda key: key != first):
        ends = repr((frozen.signatures[key].inputs, frozen.signatures[key].outputs))
        if (other := distinct.setdefault(ends, key)) != key:
            equal[key] = other
    return equal


def why_no_special_values(frozen: Frozen) -> str:
    """Return why special values are not compared for a model; empty if they are."""
    if changes_state(frozen.graph):
        return "not compared: each call changes the state of the model"
    crashing = sorted({node.op for node in nodes(frozen.graph)} & CRASHING)
    return f"not compared: {crashing[0]} of TensorFlow may crash on them" if crashing else ""


def tolerance_of(model: Frozen | Model) -> float:
    """Return the allowed error of an output, as a fraction of its range, for the coarsest dtype of the graph.

    It is that of float32 for models without a graph of TensorFlow.
    """
    graph = model.graph if isinstance(model, Frozen) else None
    if isinstance(model, Model) and model.saved_model:
        graph = read_meta_graph(model.saved_model, effects=True).graph_def
    numbers = {node.attr["T"].type for node in nodes(graph) if "T" in node.attr} if graph is not None else set()
    return max([FLOAT32_TOLERANCE, *(TOLERANCE.get(DTYPES.get(number, ""), 0.0) for number in numbers)])


def largest_error(errors: Mapping[str, ParityFacts]) -> tuple[str, float]:
    """Return the output with the largest relative error, and this error."""
    return max(((name, _relative_error(facts)) for name, facts in errors.items()), key=lambda pair: pair[1])


def _relative_error(facts: ParityFacts) -> float:
    error = facts["relative_error"]
    assert error is not None
    return error


def _limit_of_records(runtime: Runtime, inputs: Batch) -> int | None:
    """Return the number of records that a run may have, or None if it may have all, with those of special values.

    Each pass of an optimization runs them again. A model that fails is not measured here; neither is one with a fixed
    batch size, which may keep state from call to call.
    """
    if fixed_batch(runtime.inputs) or not batched_tensors(runtime.inputs):
        return None
    budget = ComparisonBudget(runtime.inputs, WARM_UP_SECONDS)
    with contextlib.suppress(Exception):
        first = next(split_batches(inputs, runtime.inputs, 4))
        for batch in budget.within(split_batches(first, runtime.inputs, 1, 3)):
            runtime.run(batch)
    records = RECORDS + MANY
    by_time = RUN_SECONDS / budget.seconds if budget.seconds else records
    limit = int(max(1, min(budget.allowed(records), by_time)))
    return limit if budget.records and limit < records else None


class _RecordedOutputs(Runtime):
    """A runtime that returns the outputs recorded from another runtime.

    Attributes:
        batches: The inputs.
        failures: Inputs on which the model fails, or returns NaN.
    """

    def __init__(self, runtime: Runtime, batches: list[Batch], others: Iterable[Batch] = ()) -> None:
        """Run a model; ``others`` are tried if it fails on each of the batches."""
        self.inputs, self.outputs = runtime.inputs, runtime.outputs
        self.batches: list[Batch] = []
        self.failures: list[Probe] = []
        self._outputs_by_batch: dict[int, Batch] = {}
        first: Exception | None = None
        for number, batch in enumerate(chain(batches, others)):
            if number >= len(batches) and self.batches:
                break
            try:
                outputs = runtime.run(batch)
            except ComponentError:
                raise
            except Exception as error:
                first = first or error
                name, working = type(error).__name__, working_records(runtime, batch)
                if name == OUT_OF_MEMORY and not working:
                    raise
                self.failures.append(Probe("inputs on which the parent fails", batch, name))
                self._record(runtime, working)
            else:
                self._record(runtime, batch, outputs)
        if first and not self.batches:
            raise first

    def _record(self, runtime: Runtime, batch: Batch, outputs: Batch | None = None) -> None:
        """Record outputs; records for which an output is NaN are compared as special values."""
        if not batch and runtime.inputs:
            return
        outputs = runtime.run(batch) if outputs is None else outputs
        if any(contains_nan(output) for output in outputs.values()):
            rows = working_records(runtime, batch, finite=True)
            if rows:
                self.failures.append(Probe("inputs for which the parent returns NaN", batch, outputs))
                batch, outputs = rows, runtime.run(rows)
        self._outputs_by_batch[id(batch)] = outputs
        self.batches.append(batch)

    def call(self, arrays: Arrays) -> Batch:
        """Return the outputs recorded for these arrays, which are identified by object identity."""
        return self._outputs_by_batch[id(arrays)]

    def max_abs(self, name: str) -> float:
        """Return the largest absolute value of an output; 0 if it is not a float."""
        if "float" not in self.outputs[name].dtype:
            return 0.0
        values = (outputs[name].astype(np.float64) for outputs in self._outputs_by_batch.values())
        return max(float(np.abs(value).max(initial=0)) for value in values)


def _record_outputs(
    key: str, runtime: Runtime, examples: Examples | None, sizes: Batch
) -> tuple[_RecordedOutputs, str, int | None]:
    """Return the outputs of a model, the source of its inputs, and a limit of records of a batch if one is needed.

    Random inputs have the ``sizes`` of inputs of the same name.
    """
    inputs, source = draw_inputs(examples, with_sizes_of(with_words(runtime.inputs), sizes), records=RECORDS)
    limit = _limit_of_records(runtime, inputs)
    if limit is not None and limit < count_records(inputs, runtime.inputs):
        inputs = next(split_batches(inputs, runtime.inputs, limit))
        limits = f"{RUN_SECONDS:g} s and {data_size(BYTES)}"
        source += f"; only {limit} of {RECORDS} records, as a run is limited to {limits}"
    batches = list(split_batches(inputs, runtime.inputs, BATCH))
    others: Iterable[Batch] = ()
    if batches and not examples:  # random integers may be a divisor of 0, or a size that is not
        integers = {name for name, array in batches[0].items() if array.dtype.kind in "iu"}
        equal = [{**batches[0], **{name: np.full_like(batches[0][name], n) for name in integers}} for n in (1, 0)]
        others = chain(equal, formatted_texts(runtime.inputs, batches[0]))
    try:
        recorded = _RecordedOutputs(runtime, batches, others)
        compare(recorded, recorded, recorded.batches)  # raises if the parent returns NaN, for which no child is blamed
        return recorded, source, limit
    except ComponentError:
        raise
    except Exception as error:
        expected = "a model that can be run here, to compare it with the optimized one"
        fix = "pass examples=PATH with real inputs; optimize a model made for another device on that device"
        raise ComponentError(f"{key} fails on {source}: {first_line(error)}", expected, fix) from error
