"""Whether a model still answers as the one it was made from, signature by signature."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tfopt.artifacts import Examples
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import draw_inputs, split_batches
from tfopt.errors import ComponentError, first_line
from tfopt.graph.frozen_model import Frozen
from tfopt.measurement.parity import compare
from tfopt.runtimes import Arrays, Runtime

RECORDS, BATCH = 32, 16
DEFAULT = "serving_default"
LEAST_RANGE = 0.01  # of the largest value: an output that hardly varies is not measured by how little it does
TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2}  # there parent and child both round every result
EXACT_ENOUGH = 1e-4


class Comparison:
    """The answers of a parent on inputs that stay the same, to hold its children against.

    Attributes:
        source: Where the inputs come from.
        skipped: Why a signature is not compared, by its key.
    """

    def __init__(self, keys: Iterable[str], parent: Callable[[str], Runtime], examples: Examples | None) -> None:
        """Run the parent.

        Args:
            keys: The signatures.
            parent: Loads one of them.
            examples: Real inputs for serving_default; random ones when None, and for the other signatures.

        Raises:
            ComponentError: When the parent cannot be run or answers with NaN, or no signature can.
        """
        self.source, self.skipped = "", {}
        self._answers: dict[str, _Answers] = {}
        for key in keys:
            try:
                self._answers[key], source = _answers(key, parent(key), examples if key == DEFAULT else None)
            except ComponentError as refusal:
                if key == DEFAULT:
                    raise
                self.skipped[key] = refusal.received
            else:
                self.source = self.source or source
        if not self._answers:
            why = "; ".join(f"{key}: {reason}" for key, reason in self.skipped.items())
            raise ComponentError(why, "a signature that can be run here", "export serving_default with plain tensors")

    def errors(self, child: Callable[[str], Runtime]) -> dict[str, dict[str, Any]]:
        """Return the parity facts of each output of a child, as ``signature/output``; see `parity.compare`."""
        found = {}
        for key, answers in self._answers.items():
            with child(key) as runtime:
                for name, parity in compare(answers, runtime, answers.batches).items():
                    spread = max(parity.output_range, LEAST_RANGE * answers.largest(name))
                    found[f"{key}/{name}"] = {**parity.facts(), "relative_error": parity.max_abs_error / spread}
        return found


def tolerance_of(frozen: Frozen) -> float:
    """The part of its range by which an output may change: rounding, in the coarsest type the graph computes in."""
    import tensorflow as tf

    numbers = {node.attr["T"].type for node in frozen.graph.node if "T" in node.attr} - {0}  # 0: a list of types
    types = {tf.as_dtype(number).name for number in numbers}
    return max([EXACT_ENOUGH, *(TOLERANCE[name] for name in types & set(TOLERANCE))])


def worst(errors: dict[str, dict[str, Any]]) -> tuple[str, float]:
    """The output of the largest relative error."""
    return max(((name, float(facts["relative_error"])) for name, facts in errors.items()), key=lambda pair: pair[1])


class _Answers(Runtime):
    """What a runtime answered, again and again."""

    def __init__(self, runtime: Runtime, batches: list[Batch]) -> None:
        self.inputs, self.outputs, self.batches = runtime.inputs, runtime.outputs, batches
        self._given = {id(batch): runtime.run(batch) for batch in batches}

    def call(self, arrays: Arrays) -> dict[str, Any]:
        """What was answered to the same arrays."""
        return self._given[id(arrays)]

    def largest(self, name: str) -> float:
        """The largest absolute value of an output; 0 where it is no float."""
        if "float" not in self.outputs[name].dtype:
            return 0.0
        return max(float(np.abs(answer[name].astype(np.float64)).max(initial=0)) for answer in self._given.values())


def _answers(key: str, runtime: Runtime, examples: Examples | None) -> tuple[_Answers, str]:
    inputs, source = draw_inputs(examples, runtime.inputs, records=RECORDS)
    with runtime:
        try:
            found = _Answers(runtime, list(split_batches(inputs, runtime.inputs, BATCH)))
            compare(found, found, found.batches)  # else each child would be refused for a NaN of the parent
            return found, source
        except ComponentError:
            raise
        except Exception as error:
            raise ComponentError(
                f"{key} fails on {source}: {first_line(error)}",
                "a model that can be run here, to compare it with the optimized one",
                "pass examples=PATH with real inputs; optimize a model made for another device on that device",
            ) from error
