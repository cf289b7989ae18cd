"""Whether a converted file answers as its parent does, and what counts as an answer gone wrong."""

from typing import Any

from tfopt.artifacts import Examples
from tfopt.conversion.calibration import unseen
from tfopt.conversion.convert import Conversion
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import count, cut, probe
from tfopt.errors import ComponentError
from tfopt.measurement.parity import Parity, compare
from tfopt.runtimes import Runtime

CHECKED = 256  # records to compare on: enough to see a broken model, few enough to take seconds
RANDOM = 36  # without examples

EXACT = {"float32": 1e-4, "fp32": 1e-4}  # the largest difference in units of the output's range
# Of the others, the least part of records that keep their class, and the least correlation where there are no classes:
# the largest difference says little of them, since a steep output moves far at some place in any lower precision.
ALIKE = dict.fromkeys(("float16", "fp16", "bf16", "tf32"), (0.95, 0.99))
BROKEN = (0.5, 0.5)  # of the integer kinds

ADVICE = {
    **dict.fromkeys(("float32", "fp32"), "pass a larger tolerance if this is known to be harmless"),
    **dict.fromkeys(("float16", "fp16"), "choose float32, or bfloat16 where there is one; values may be out of range"),
    **dict.fromkeys(("bf16", "tf32"), "choose float32"),
    **dict.fromkeys(("int8", "int16x8"), "calibrate on more and more typical examples, or choose a kind of more bits"),
    "dynamic": "choose float16 or float32",
    "int4": "choose dynamic, or keep the worst layers in float32 with max_degradation",
}


def verify(
    parent: Runtime,
    child: Runtime,
    examples: Examples | None,
    calibrated: Batch | None,
    asked: Conversion,
) -> dict[str, Any]:
    """Run both at batch sizes 1, 3 and 32; return what the model card says of it, with the parity of each output.

    Args:
        parent: What was converted.
        child: The converted file.
        examples: Real inputs; random ones when None.
        calibrated: The inputs that the file was calibrated on. They are left out, unless there are no others.
        asked: Float32 must be exact, 16 bits alike, the others not broken; a tolerance says instead how large a part of
            the output's range may differ. Another split than was calibrated on is taken where there is one.

    Raises:
        ComponentError: When names, dtypes, shapes or a free batch were lost, or the answers are not the parent's.
    """
    _check_batch(parent, child)
    given, told = held_out(examples, parent, calibrated, asked)
    found = compare(parent, child, cut(given, parent.inputs, 1, 3, 32))
    for name, parity in found.items():
        _check(name, parity, asked, examples is not None)
    return {"run": True, **told, "outputs": {name: parity.facts() for name, parity in found.items()}}


def held_out(
    examples: Examples | None, parent: Runtime, calibrated: Batch | None, asked: Conversion
) -> tuple[Batch, dict[str, Any]]:
    """Return inputs to compare on, which were not calibrated on where there are such, and what the card says of them.

    Args, raises: as `verify`.
    """
    drawn, source = probe(
        examples, parent.inputs, records=CHECKED if examples else RANDOM, seed=asked.seed, seen=asked.split
    )
    given, seen = unseen(drawn, calibrated)
    facts: dict[str, Any] = {"inputs": source, "records": count(given, parent.inputs)}
    if seen and given is drawn:  # there are no others
        facts["also_calibrated_on"] = seen
    return given, facts


def _check_batch(parent: Runtime, child: Runtime) -> None:
    for name, spec in parent.inputs.items():
        if name in child.inputs and spec.shape[:1] == (None,) and child.inputs[name].shape[:1] != (None,):
            raise ComponentError(
                f"input {name!r} became {child.inputs[name]}",
                f"a free batch size, as in {spec}",
                "report this, with the model",
            )


def _check(name: str, parity: Parity, asked: Conversion, real: bool) -> None:
    wrong = None
    limit = EXACT.get(asked.precision) if asked.tolerance is None else asked.tolerance
    agreement, correlation = ALIKE.get(asked.precision, BROKEN)
    if parity.constant:
        wrong = "the same answer for every input", "answers that vary as the parent's do"
    elif limit is not None and parity.relative_error > limit:
        wrong = f"differs by {parity.relative_error:.2g} of the output's range", f"at most {limit:g}"
    elif limit is None and real and parity.agreement is not None:  # classes of random inputs mean little
        if parity.agreement < agreement:
            wrong = f"{parity.agreement:.0%} of the records keep their class", f"at least {agreement:.0%}"
    elif limit is None and parity.correlation is not None and parity.correlation < correlation:
        wrong = f"correlation {parity.correlation:.2f} with the parent", f"at least {correlation:g}"
    if wrong:
        received, expected = wrong
        raise ComponentError(f"{asked.precision}, output {name!r}: {received}", expected, ADVICE[asked.precision])
