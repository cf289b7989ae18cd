"""Loaded models of a worker: predictions by input name, reuse between batches, and failures stored as results."""

import contextlib
import gc
import itertools
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import RecordSpec, TensorSpec, fixed_batch
from tfopt.components.evaluate.metrics.accumulators import Position
from tfopt.components.evaluate.worker_plan import Plan
from tfopt.data.batches import RECORDS, column_name, resize_batch, to_inputs
from tfopt.data.feature_schema import check_features, match_features, required_features
from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError
from tfopt.measurement.parity import without_tensor_float_32
from tfopt.processes.memory import trim_heap
from tfopt.runtimes import Runtime
from tfopt.storage.remote_files import local_copy


class LoadedModel:
    """A loaded model, or the reason why it cannot be loaded."""

    def __init__(self, uri: str, plan: Plan, runtime: Runtime | None = None, failure: str = "") -> None:
        """Load the model unless it is loaded already or has a failure; a new failure is stored, not raised."""
        self.runtime = runtime  # None if it failed or is closed
        self.inputs: dict[str, TensorSpec] = {}  # what the model requires; under `RECORDS` an input that it parses
        # Predictions for batches that the model was run on before, or why it failed there.
        self.stored: dict[Position, NDArray[Any] | Exception] = {}
        self.output, self.failure = plan.output, failure
        if failure:
            return
        try:
            runtime = self.runtime = runtime or runtimes.load(Model(local_copy(uri)), signature=plan.signature)
            runtime.inputs = match_features(runtime.inputs, plan.features, plan.settings.label)
            check_features(plan.features, runtime.inputs, "inputs")
            self.inputs = required_features(runtime.inputs)
            if any(isinstance(spec, RecordSpec) for spec in runtime.inputs.values()):
                self.inputs[RECORDS] = RecordSpec("string", (None,))
            # Converters rename a single output. Several outputs are identified by name.
            must_match = len(runtime.outputs) > 1 or plan.output in runtime.outputs
            self.output = select_output(runtime, plan.output if must_match else None)
        except Exception as error:
            self.close()
            self.failure = describe_error(error)

    def close(self) -> None:
        """Release the runtime; stored predictions remain."""
        if self.runtime:
            self.runtime.close()
        self.runtime = None

    def store(self, position: Position, columns: Mapping[str, NDArray[Any]]) -> None:
        """Store the predictions for a batch, or the failure; after a failure, the model is not run again."""
        if self.runtime:
            try:
                self.stored[position] = predict(self.runtime, columns, self.output)
            except Exception as error:
                self.stored[position] = error
                self.close()

    def predict(self, position: Position, columns: Mapping[str, NDArray[Any]], records: int) -> NDArray[Any] | str:
        """Return the predictions for a batch, ``[records, values]``, or why the model fails."""
        stored = self.stored.pop(position, None)
        if isinstance(stored, Exception):
            return describe_error(stored)
        if self.failure:
            return self.failure
        # The baseline was run on records that lack the features of other models, too.
        if stored is not None and len(stored) == records:
            return stored
        assert self.runtime
        try:
            return predict(self.runtime, columns, self.output)
        except Exception as error:
            return describe_error(error)


class ModelPool:
    """The loaded models of this process, reused because Beam creates and drops workers faster than models load.

    A set of models serves one caller at a time; a second thread gets another set.
    """

    def __init__(self) -> None:
        """Create an empty pool."""
        self._free: list[tuple[Any, list[LoadedModel]]] = []
        self._offered: LoadedModel | None = None
        self._lock = threading.Lock()

    def offer(self, baseline: LoadedModel) -> None:
        """Use a baseline that this process has loaded, if the models of its plan are borrowed here."""
        with self._lock:
            self._offered = baseline

    @contextlib.contextmanager
    def borrow(self, plan: Plan) -> Iterator[list[LoadedModel]]:
        """Yield the loaded models of a plan for one caller."""
        key = (plan.models, plan.signature, plan.output, tuple(plan.crashed))
        self.clear(but=key)
        with self._lock:
            models = self._free.pop()[1] if self._free else self._load(plan, range(len(plan.models)))
        try:
            yield models
        except BaseException:  # the step ends; the models are not used again
            for model in models:
                model.close()
            raise
        with self._lock:
            self._free.append((key, models))

    @contextlib.contextmanager
    def borrow_group(self, plan: Plan, group: Sequence[int]) -> Iterator[list[LoadedModel]]:
        """Load some models of a plan for one caller, and release them afterwards."""
        with self._lock:
            models = self._load(plan, group)
        try:
            yield models
        finally:
            for model in models:
                model.close()
            gc.collect()  # graphs of TensorFlow are cycles
            trim_heap()

    def _load(self, plan: Plan, group: Sequence[int]) -> list[LoadedModel]:
        logging.getLogger(__name__).info("loading models %d to %d of %d", group[0] + 1, group[-1] + 1, len(plan.models))
        loaded = []
        if self._offered and group[0] == 0:
            loaded, self._offered = [self._offered], None
        crashed = plan.crashed
        others = group[len(loaded) :]
        return loaded + [
            LoadedModel(plan.models[number][0], plan, failure=crashed.get(number, "")) for number in others
        ]

    def clear(self, but: Any = None) -> None:
        """Release the models of all plans, or of all but one."""
        with self._lock:
            unused = [models for key, models in self._free if key != but]
            self._free = [(key, models) for key, models in self._free if key == but]
            if not but and self._offered:
                unused.append([self._offered])
                self._offered = None
        for model in itertools.chain(*unused):
            model.close()


MODEL_POOL = ModelPool()


def required_inputs(models: Iterable[LoadedModel]) -> dict[str, TensorSpec]:
    """Return the features that records must have for all models."""
    return {name: spec for model in models for name, spec in model.inputs.items()}


def select_output(runtime: Runtime, name: str | None) -> str:
    """Return the name of the evaluated output: the requested one, or the only one.

    Raises:
        ComponentError: If there are several and none is requested, or none has the requested name.
    """
    outputs = ", ".join(f"{name}: {spec}" for name, spec in runtime.outputs.items())
    if name in runtime.outputs:
        return str(name)
    if name is not None:
        raise ComponentError(f"no output {name!r}", f"one of {outputs}", nearest(name, runtime.outputs))
    if len(runtime.outputs) > 1:
        received = f"{len(runtime.outputs)} outputs"
        raise ComponentError(received, f"one of {outputs}", "pass output=NAME with the output to evaluate")
    return next(iter(runtime.outputs))


def predict(runtime: Runtime, columns: Mapping[str, NDArray[Any]], output: str) -> NDArray[Any]:
    """Run a model on stored columns and return an output as ``[records, values]``."""
    outputs = run_output(runtime, columns, output)
    return outputs.reshape(len(outputs), -1)


@without_tensor_float_32()
def run_output(runtime: Runtime, columns: Mapping[str, NDArray[Any]], output: str) -> NDArray[Any]:
    """Run a model on stored columns, in batches of its size if that is fixed; return an output, ``[records, …]``."""
    _check_scalars(runtime, columns)
    arrays = to_inputs(columns, runtime.inputs)
    count = len(next(iter(columns.values())))
    fixed = fixed_batch(runtime.inputs)
    chunks = []
    for start in range(0, count, fixed or count):
        end = start + (fixed or count)
        inputs = {name: array[start:end] if array.ndim else array for name, array in arrays.items()}
        inputs = resize_batch(inputs, fixed) if fixed else inputs
        runtime.check(inputs)
        chunks.append(runtime.run(inputs)[output])
    predictions = np.concatenate(chunks)[:count] if fixed else chunks[0]
    if len(predictions) != count:
        received = f"output {output!r}: {len(predictions)} rows for {count} records"
        raise ComponentError(received, "a row for each record", "export it again")
    return predictions


def _check_scalars(runtime: Runtime, columns: Mapping[str, NDArray[Any]]) -> None:
    """Refuse records with different values for a scalar input: a batch has one value, so most would get another's."""
    for name, spec in runtime.inputs.items():
        column = columns[column_name(name, spec)]
        if not spec.shape and (column != column[:1]).any():
            received = f"input {name!r} is {spec}, and the records of a batch have several values"
            fix = f"give the model an input {name!r} of shape [None], or prepare examples with one value"
            raise ComponentError(received, "one value for all of a batch, or an input with a batch axis", fix)


def describe_error(error: Exception) -> str:
    """Return an exception as one line of text."""
    if isinstance(error, ComponentError):
        first, *_, last = error.received.splitlines() * 2
        return f"{first if first == last else f'{first}: {last.strip()}'} (expected {error.expected})"
    return f"{type(error).__name__}: {first_line(error)}"
