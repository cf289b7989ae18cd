"""Whether a converted file answers as its parent does, and what counts as an answer gone wrong."""

from typing import Any

from tfopt.artifacts import Examples
from tfopt.calibration import unseen
from tfopt.errors import ComponentError
from tfopt.examples import Batch
from tfopt.parity import Parity, compare
from tfopt.probes import cut, probe
from tfopt.runtimes import Runtime

CHECKED = 256  # records to compare on: enough to see a broken model, few enough to take seconds
RANDOM = 36  # without examples

EXACT = {"float32": 1e-4, "fp32": 1e-4}  # the largest difference in units of the output's range
# Of the others, the least part of records that keep their class, and the least correlation where there are no classes:
# the largest difference says little of them, since a steep output moves far at some place in any lower precision.
ALIKE = dict.fromkeys(("float16", "fp16", "bf16", "tf32"), (0.95, 0.99))
BROKEN = (0.5, 0.5)  # of the integer kinds


def verify(
    parent: Runtime,
    child: Runtime,
    examples: Examples | None,
    calibrated: Batch | None,
    *,
    precision: str,
    tolerance: float | None,
    split: str,
    seed: int,
    advice: str,
) -> dict[str, Any]:
    """Run both at batch sizes 1, 3 and 32; return what the model card says of it, with the parity of each output.

    Args:
        parent: What was converted.
        child: The converted file.
        examples: Real inputs; random ones when None.
        calibrated: The inputs that the file was calibrated on. They are left out, unless there are no others.
        precision: Of the file: float32 must be exact, 16 bits alike, the others not broken.
        tolerance: The largest difference allowed instead, in units of the output's range.
        split: What was calibrated on; another split is taken where there is one.
        seed: Draws the examples or the random values.
        advice: How to fix a file that is refused.

    Raises:
        ComponentError: When names, dtypes, shapes or a free batch were lost, or the answers are not the parent's.
    """
    _check_batch(parent, child)
    given, told = held_out(examples, parent, calibrated, split=split, seed=seed)
    found = compare(parent, child, cut(given, parent.inputs, 1, 3, 32))
    for name, parity in found.items():
        _check(name, parity, precision, tolerance, examples is not None, advice)
    return {"run": True, **told, "outputs": {name: parity.facts() for name, parity in found.items()}}


def held_out(
    examples: Examples | None, parent: Runtime, calibrated: Batch | None, *, split: str, seed: int
) -> tuple[Batch, dict[str, Any]]:
    """Return inputs to compare on, which were not calibrated on where there are such, and what the card says of them.

    Args, raises: as `verify`.
    """
    drawn, source = probe(examples, parent.inputs, records=CHECKED if examples else RANDOM, seed=seed, seen=split)
    given, seen = unseen(drawn, calibrated)
    facts: dict[str, Any] = {"inputs": source, "records": len(next(iter(given.values())))}
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


def _check(name: str, parity: Parity, precision: str, tolerance: float | None, real: bool, advice: str) -> None:
    wrong = None
    limit = EXACT.get(precision) if tolerance is None else tolerance
    agreement, correlation = ALIKE.get(precision, BROKEN)
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
        raise ComponentError(f"{precision}, output {name!r}: {received}", expected, advice)
