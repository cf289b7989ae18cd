"""Compare the outputs of a rewritten model with those of its parent, signature by signature."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tfopt.artifacts import Examples
from tfopt.artifacts.models import SERVING_DEFAULT
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import draw_inputs, split_batches, with_words
from tfopt.errors import ComponentError, first_line, nearest
from tfopt.graph.frozen_model import Frozen
from tfopt.measurement.parity import compare
from tfopt.runtimes import Arrays, Runtime

RECORDS, BATCH = 32, 16
MIN_RANGE = 0.01  # fraction of the largest value: the range of a nearly constant output would make any error large
TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2}  # parent and child both round every result to this dtype
FLOAT32_TOLERANCE = 1e-4


class Comparison:
    """Outputs of a parent on fixed inputs, with which the outputs of its children are compared.

    Attributes:
        source: Description of the inputs.
        skipped: Keys of the signatures that are not compared, with the reason.
    """

    def __init__(
        self,
        keys: Iterable[str],
        parent: Callable[[str], Runtime],
        examples: Examples | None,
        signature: str = SERVING_DEFAULT,
    ) -> None:
        """Run the parent on each signature and store its outputs.

        Args:
            keys: The signatures.
            parent: Function that loads a signature by its key.
            examples: Inputs for one signature. Other signatures, and all if this is None, get random inputs.
            signature: The signature that the examples are for.

        Raises:
            ComponentError: If that signature of the parent does not exist, cannot be run or returns NaN.
        """
        self.source, self.skipped = "", {}
        self._recorded: dict[str, _RecordedOutputs] = {}
        keys = list(keys)
        if signature != SERVING_DEFAULT and signature not in keys:
            raise ComponentError(f"no signature {signature!r}", "one of its signatures", nearest(signature, keys))
        for key in keys:
            try:
                self._recorded[key], source = _record_outputs(key, parent(key), examples if key == signature else None)
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

    def errors(self, child: Callable[[str], Runtime]) -> dict[str, dict[str, Any]]:
        """Return the parity facts of each output of a child by ``signature/output``; see `parity.compare`."""
        facts = {}
        for key, parent in self._recorded.items():
            with child(key) as runtime:
                for name, parity in compare(parent, runtime, parent.batches).items():
                    spread = max(parity.output_range, MIN_RANGE * parent.max_abs(name))
                    facts[f"{key}/{name}"] = {**parity.facts(), "relative_error": parity.max_abs_error / spread}
        return facts


def tolerance_of(frozen: Frozen) -> float:
    """Return the allowed error of an output, as a fraction of its range, for the coarsest dtype of the graph."""
    import tensorflow as tf

    numbers = {node.attr["T"].type for node in frozen.graph.node if "T" in node.attr} - {0}  # 0: a list of types
    types = {tf.as_dtype(number).name for number in numbers}
    return max([FLOAT32_TOLERANCE, *(TOLERANCE[name] for name in types & set(TOLERANCE))])


def largest_error(errors: dict[str, dict[str, Any]]) -> tuple[str, float]:
    """Return the output with the largest relative error, and this error."""
    return max(((name, float(facts["relative_error"])) for name, facts in errors.items()), key=lambda pair: pair[1])


class _RecordedOutputs(Runtime):
    """A runtime that returns the outputs recorded from another runtime."""

    def __init__(self, runtime: Runtime, batches: list[Batch]) -> None:
        self.inputs, self.outputs, self.batches = runtime.inputs, runtime.outputs, batches
        self._outputs_by_batch = {id(batch): runtime.run(batch) for batch in batches}

    def call(self, arrays: Arrays) -> dict[str, Any]:
        """Return the outputs recorded for these arrays, which are identified by object identity."""
        return self._outputs_by_batch[id(arrays)]

    def max_abs(self, name: str) -> float:
        """Return the largest absolute value of an output; 0 if it is not a float."""
        if "float" not in self.outputs[name].dtype:
            return 0.0
        values = (outputs[name].astype(np.float64) for outputs in self._outputs_by_batch.values())
        return max(float(np.abs(value).max(initial=0)) for value in values)


def _record_outputs(key: str, runtime: Runtime, examples: Examples | None) -> tuple[_RecordedOutputs, str]:
    inputs, source = draw_inputs(examples, with_words(runtime.inputs), records=RECORDS)
    with runtime:
        try:
            recorded = _RecordedOutputs(runtime, list(split_batches(inputs, runtime.inputs, BATCH)))
            compare(
                recorded, recorded, recorded.batches
            )  # raises if the parent returns NaN, which no child may be blamed for
            return recorded, source
        except ComponentError:
            raise
        except Exception as error:
            raise ComponentError(
                f"{key} fails on {source}: {first_line(error)}",
                "a model that can be run here, to compare it with the optimized one",
                "pass examples=PATH with real inputs; optimize a model made for another device on that device",
            ) from error
