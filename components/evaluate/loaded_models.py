"""The models, loaded: each asked by the names of its own signature, kept for the next batch, its failure kept apart."""

import contextlib
import itertools
import logging
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.storage import fetched
from tfopt.artifacts.tensor_spec import fixed_batch
from tfopt.data.batches import as_input, check_features
from tfopt.errors import ComponentError, first_line, nearest
from tfopt.runtimes import Runtime

if TYPE_CHECKING:
    from tfopt.components.evaluate.plan import Plan


class Contestant:
    """A model ready to answer, or the reason why it is not.

    Attributes:
        runtime: The loaded model; None when it failed.
        output: Which output is judged.
        failure: Why it failed.
    """

    def __init__(self, uri: str, plan: "Plan") -> None:
        """Load it; a failure is kept, not raised."""
        self.runtime: runtimes.Runtime | None = None
        self.output, self.failure = plan.output, ""
        try:
            runtime = self.runtime = runtimes.load(Model(fetched(uri)))
            check_features(plan.stored, runtime.inputs, "inputs")
            # Converters rename a single output; where there are several, the name is all there is.
            several = len(runtime.outputs) > 1 or plan.output in runtime.outputs
            self.output = judged_output(runtime, plan.output if several else None)
        except Exception as error:
            self.close()
            self.runtime, self.failure = None, reason(error)

    def close(self) -> None:
        """Give back what it holds."""
        if self.runtime:
            self.runtime.close()


class Pool:
    """The loaded models of this process. Beam makes and drops workers as it likes; loading is too slow to follow it.

    A set of models answers one caller at a time; a second thread gets a set of its own.
    """

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._free: list[tuple[Any, list[Contestant]]] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def borrow(self, plan: "Plan") -> Iterator[list[Contestant]]:
        """Yield the models of a plan, loaded, for one caller."""
        key = (plan.models, plan.output)
        self.clear(but=key)
        with self._lock:
            models = self._free.pop()[1] if self._free else None
            if models is None:
                logging.getLogger("tfopt").info("loading %d models", len(plan.models))
                models = [Contestant(uri, plan) for uri, _ in plan.models]
        try:
            yield models
        except BaseException:  # the step ends, and nobody will ask for them again
            for model in models:
                model.close()
            raise
        with self._lock:
            self._free.append((key, models))

    def clear(self, but: Any = None) -> None:
        """Give the memory back, of all plans or of all but one."""
        with self._lock:
            gone = [models for key, models in self._free if key != but]
            self._free = [(key, models) for key, models in self._free if key == but]
        for model in itertools.chain(*gone):
            model.close()


POOL = Pool()


def judged_output(runtime: Runtime, wanted: str | None) -> str:
    """Return the name of the output to judge: the one asked for, or the only one.

    Raises:
        ComponentError: When there are several and none is asked for, or none of that name.
    """
    known = ", ".join(f"{name}: {spec}" for name, spec in runtime.outputs.items())
    if wanted in runtime.outputs:
        return str(wanted)
    if wanted is not None:
        raise ComponentError(f"no output {wanted!r}", f"one of {known}", nearest(wanted, runtime.outputs))
    if len(runtime.outputs) > 1:
        raise ComponentError(
            f"{len(runtime.outputs)} outputs", f"one of {known}", "pass output=NAME to say which is judged"
        )
    return next(iter(runtime.outputs))


def answer(runtime: Runtime, columns: Mapping[str, NDArray[Any]], output: str) -> NDArray[Any]:
    """Run a model on stored columns and return ``[records, numbers]``; a model with a fixed batch gets such batches."""
    _check_scalars(runtime, columns)
    arrays = {name: as_input(columns[name], spec) for name, spec in runtime.inputs.items()}
    count = len(next(iter(columns.values())))
    fixed = fixed_batch(runtime.inputs)
    found = []
    for start in range(0, count, fixed or count):
        rows = {name: array[start : start + (fixed or count)] for name, array in arrays.items() if array.ndim}
        if fixed:
            rows = {name: np.resize(array, (fixed, *array.shape[1:])) for name, array in rows.items()}
        chunk = arrays | rows
        runtime.check(chunk)
        found.append(runtime.run(chunk)[output])
    answers = np.concatenate(found)[:count] if fixed else found[0]
    if len(answers) != count:
        raise ComponentError(
            f"output {output!r}: {len(answers)} rows for {count} records", "a row for each record", "export it again"
        )
    return answers.reshape(count, -1)


def _check_scalars(runtime: Runtime, columns: Mapping[str, NDArray[Any]]) -> None:
    """Refuse records that differ where a batch has one value: most of them would be judged by that of another."""
    for name, spec in runtime.inputs.items():
        if not spec.shape and (columns[name] != columns[name][:1]).any():
            raise ComponentError(
                f"input {name!r} is {spec}, and the records of a batch have several values",
                "one value for all of a batch, or an input with a batch axis",
                f"give the model an input {name!r} of shape [None], or prepare examples with one value",
            )


def reason(error: Exception) -> str:
    """An exception in one line."""
    if isinstance(error, ComponentError):
        return f"{error.received} (expected {error.expected})"
    return f"{type(error).__name__}: {first_line(error)}"
