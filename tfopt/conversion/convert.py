"""Every conversion to another format: what it is asked for, what it refuses at once, and what came of it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfopt.artifacts import Examples, Model
from tfopt.errors import ComponentError
from tfopt.formatting import data_size
from tfopt.keras_models.quantization_aware import has_trained_ranges
from tfopt.processes.subprocess_call import run_in_child

WORDS = {"saved_model": "a SavedModel", "keras": "a Keras model", "onnx": "an ONNX model"}
UNSTABLE = 0.5  # of a range: a tenth is common, since a largest value is a matter of luck

log = logging.getLogger("tfopt")


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """What is asked of every conversion, under the names of the parameters; each has a subclass with its own.

    It travels to the child process that does the work.
    """

    precision: str
    calibration_count: int = 200
    split: str = "train"
    seed: int = 0
    tolerance: float | None = None


def check(
    model: Model,
    examples: Examples | None,
    asked: Conversion,
    formats: Sequence[str],
    *,
    calibrated: Sequence[str] = ("int8",),
    needs_none: str,
    ranges: str | None = None,
) -> bool:
    """Refuse a model, a precision or data that cannot work; return whether the model has its 8-bit ranges already.

    Args:
        model: What is to be converted.
        examples: What there is to calibrate on.
        asked: What was asked for.
        formats: What can be converted, as in `Model.format`.
        calibrated: The precisions that need ranges.
        needs_none: A precision that needs no examples, for who has none.
        ranges: How the model comes by its ranges, where it was not trained with them.

    Raises:
        ComponentError: See above.
    """
    if model.format not in formats:
        raise ComponentError(
            f"{model.uri}: a {model.format} model",
            " or ".join(WORDS[name] for name in formats),
            "give the model it was converted from",
        )
    ranges = "whose 8-bit ranges were trained" if has_trained_ranges(model) else ranges
    if ranges and asked.precision != "int8":
        raise ComponentError(
            f"precision={asked.precision!r} for {model.name}, {ranges}",
            "precision='int8', which takes them as they are",
            "pass precision='int8', or give the model from before it was quantized",
        )
    if asked.precision in calibrated and not ranges:
        if examples is None:
            raise ComponentError(
                f"precision={asked.precision!r} without examples",
                "examples to calibrate on",
                f"pass examples=PATH, or precision={needs_none!r}, which needs none",
            )
        examples.split(asked.split)
    return bool(ranges)


def convert(
    work: Callable[..., dict[str, Any]], model: Model, examples: Examples | None, made: Model, asked: Conversion
) -> None:
    """Do the work in a child process, and let the output's metadata say what came of it.

    Args:
        work: Called with the model, the examples, the output's folder and what was asked; it returns metadata.
        model: What is converted.
        examples: To calibrate on and to compare with.
        made: The output, with its name.
        asked: What was asked for.

    Raises:
        ComponentError: The work's own, or that its process died.
    """
    kind = made.metadata["name"]
    log.info("converting %s to %s", model.name, kind)
    made.metadata |= run_in_child(work, model, examples, made.path, asked, doing=f"converting to {kind}")
    log.info("%s", summary(made))


def summary(made: Model) -> str:
    """What came of it, in a line."""
    from tfopt.measurement.parity import in_words

    facts, files = made.metadata, type(made)(made.path).payload()
    verified, size = facts["verified"], data_size(sum(file.stat().st_size for file in files))
    answers = in_words(verified["outputs"]) if verified["run"] else f"not run: {verified['reason']}"
    return f"{facts['name']}: {size}, {answers}{_unstable(facts)}"


def _unstable(facts: Mapping[str, Any]) -> str:
    """A warning where what was calibrated on decided the ranges; the card has all of it."""
    found = facts.get("stability") or {}
    moved = float(found.get("largest_difference", 0))
    said = f"; the range of {found.get('least_stable')} is another one, by {moved:.0%}, on half of the examples"
    return f"{said}: calibrate on more" if moved > UNSTABLE else ""
