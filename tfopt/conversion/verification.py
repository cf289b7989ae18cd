"""Comparison of a converted file with its parent, and the limits it must meet."""

from collections.abc import Iterator

from tfopt.artifacts import Examples, Model
from tfopt.artifacts.model_card import Verification
from tfopt.conversion.calibration import drop_calibrated
from tfopt.conversion.parameters import Comparison
from tfopt.data.batches import Batch
from tfopt.data.feature_schema import refuse_parts
from tfopt.data.sample_inputs import compared_records, count_records, draw_inputs, random_batch, split_batches
from tfopt.errors import ComponentError, ExamplesError
from tfopt.graph_checks.comparison import tolerance_of
from tfopt.measurement.comparison_budget import ComparisonBudget
from tfopt.measurement.exact_tests import least_share
from tfopt.measurement.parity import Parity, compare
from tfopt.runtimes import Runtime

RECORDS = 256  # to compare on, fewer if they are large: enough to notice a broken model, and they take seconds
RANDOM_RECORDS = 36

MAX_ERROR = {"float32": 1e-4, "fp32": 1e-4}  # largest difference, as a fraction of the output's range
# The other precisions are limited by the share of records that keep their class or, without classes, by the
# correlation: the largest difference says little, since a steep output differs much somewhere in any lower precision.
MIN_AGREEMENT = dict.fromkeys(("float16", "fp16", "bf16", "tf32"), (0.95, 0.99))
MIN_AGREEMENT_INTEGER = (0.5, 0.5)
# Integers are rounded by less than this if calibrated well. Beyond it the model is usable, and the card has a warning.
USUAL_CHANGES, USUAL_CORRELATION = 0.05, 0.9

ADVICE = {
    **dict.fromkeys(
        ("float32", "fp32"), "report this with the model, or pass a larger tolerance if this is known to be harmless"
    ),
    **dict.fromkeys(("float16", "fp16"), "choose float32, or bfloat16 where there is one; values may be out of range"),
    **dict.fromkeys(("bf16", "tf32"), "choose float32"),
    **dict.fromkeys(
        ("int8", "fp8", "int16x8"),
        "pass max_degradation (in int8), which leaves the worst layers in float, "
        "calibrate on more and more typical examples, or choose a kind of more bits",
    ),
    "dynamic": "choose float16 or float32",
    "int4": "choose dynamic, or raise the precision of the worst layers with max_degradation",
    "auto": "pass a smaller max_degradation",
}


def verify(
    parent: Runtime,
    child: Runtime,
    examples: Examples | None,
    calibrated: Batch | None,
    parameters: Comparison,
    precision: str,
) -> Verification:
    """Run both models at batch sizes 1, 3 and 32, check the parity, and return it for the model card.

    They are compared on examples, or random inputs without any: of another split than the one for calibration if there
    is one, and without the ``calibrated`` inputs unless there are no others. The precision of the child determines the
    limits if there is no tolerance, and so does that of the parent, whose own rounding the child lacks.

    Raises:
        ComponentError: If names, dtypes, shapes or an open batch size changed, or the outputs do not match.
    """
    _check_open_batch(parent, child)
    inputs, facts = draw_held_out(examples, parent, calibrated, parameters)
    budget = ComparisonBudget(parent.inputs)
    outputs = compare(parent, child, split_batches(inputs, parent.inputs, 1, 3, 32), budget=budget)
    if budget.limited:
        facts |= {"inputs": f"{facts['inputs']}; {budget.limited}", "records": budget.records}
    try:
        for name, parity in outputs.items():
            _check_parity(name, parity, precision, parameters.tolerance, parent, with_examples=examples is not None)
    except ComponentError:
        _check_repeatable(parent, next(split_batches(inputs, parent.inputs, 1)))
        raise
    warnings = [text for name, parity in outputs.items() for text in _warnings(name, parity, precision, examples)]
    facts = {"run": True, **facts, "outputs": {name: parity.facts() for name, parity in outputs.items()}}
    return facts | {"warnings": warnings} if warnings else facts


def check_whole_inputs(parent: Runtime, examples: Examples | None, parameters: Comparison) -> None:
    """Raise ExamplesError if records do not fit the inputs, or these are parts of a sparse or ragged tensor.

    Names and types of the parts can be those of other inputs too: without examples, the parent must also fail on them.
    """
    if examples:
        draw_inputs(examples, parent.inputs, records=1, seed=parameters.seed, seen=parameters.split)
        return
    try:
        refuse_parts(parent.inputs, {}, "random inputs")
    except ExamplesError as error:
        try:
            compare(parent, parent, [random_batch(parent.inputs, records=1, seed=parameters.seed)])
        except ComponentError:
            raise error from None


def draw_held_out(
    examples: Examples | None, parent: Runtime, calibrated: Batch | None, parameters: Comparison
) -> tuple[Batch, Verification]:
    """Return inputs to compare on, not calibrated on if possible, and their description; see `verify`."""
    count = compared_records(parent.inputs, RECORDS, examples) if examples else RANDOM_RECORDS
    batch, source = draw_inputs(examples, parent.inputs, records=count, seed=parameters.seed, seen=parameters.split)
    inputs, dropped = drop_calibrated(batch, calibrated)
    facts: Verification = {"inputs": source, "records": count_records(inputs, parent.inputs)}
    if dropped and inputs is batch:  # there are no others
        facts["also_calibrated_on"] = dropped
    return inputs, facts


def compare_held_out(
    parent: Runtime, child: Runtime, examples: Examples | None, calibrated: Batch | None, parameters: Comparison
) -> list[Parity]:
    """Compare a quantized form, which is closed, with its parent on the records that `verify` compares it on."""
    inputs, _ = draw_held_out(examples, parent, calibrated, parameters)
    batches, budget = split_batches(inputs, parent.inputs, 1, 3, 32), ComparisonBudget(parent.inputs)
    with child:
        return list(compare(parent, child, batches, budget=budget).values())


def _check_repeatable(parent: Runtime, batch: Batch) -> None:
    """Raise ComponentError if the parent itself returns something else for the same inputs."""
    for name, parity in compare(parent, parent, [batch]).items():
        if parity.relative_error > MAX_ERROR["float32"]:
            received = f"output {name!r} differs from run to run of the model itself"
            fix = "export it without its random operations, such as noise and dropout of training"
            raise ComponentError(received, "a model whose outputs depend on its inputs only", fix)


def _check_open_batch(parent: Runtime, child: Runtime) -> None:
    for name, spec in parent.inputs.items():
        if name in child.inputs and spec.shape[:1] == (None,) and child.inputs[name].shape[:1] != (None,):
            received = f"input {name!r} became {child.inputs[name]}"
            raise ComponentError(received, f"an open batch size, as in {spec}", "report this, with the model")


def _warnings(name: str, parity: Parity, precision: str, examples: Examples | None) -> Iterator[str]:
    """Describe differences that are within the limits, and beyond what rounding to this precision explains."""
    if precision in MAX_ERROR or precision in MIN_AGREEMENT:  # their limits are narrow
        return
    if examples and parity.agreement is not None:  # classes of random inputs mean little
        changed = round((1 - parity.agreement) * parity.records)
        if (least := least_share(changed, parity.records)) > USUAL_CHANGES:
            proven = f"which proves a share of over {least:.1%}"
            yield f"output {name!r}: {changed} of {parity.records} records change their class, {proven}"
    if parity.correlation is not None and parity.correlation < USUAL_CORRELATION:
        error = f"{parity.relative_error:.1%} of the range"
        yield f"output {name!r}: correlation {parity.correlation:.2f} with the parent, largest difference {error}"


def _check_parity(
    name: str, parity: Parity, precision: str, tolerance: float | None, parent: Runtime, *, with_examples: bool
) -> None:
    error = None
    limit = MAX_ERROR.get(precision) if tolerance is None else tolerance
    if tolerance is None and limit is not None and parity.relative_error > limit:
        limit = max(limit, tolerance_of(Model(parent.name)))
    agreement, correlation = MIN_AGREEMENT.get(precision, MIN_AGREEMENT_INTEGER)
    if parity.constant:
        error = "the same values for every input", "values that vary like the parent's"
    elif limit is not None and parity.relative_error > limit:
        error = f"differs by {parity.relative_error:.2g} of the output's range", f"at most {limit:g}"
    elif limit is None and with_examples and parity.agreement is not None:  # classes of random inputs mean little
        if parity.agreement < agreement:
            error = f"{parity.agreement:.0%} of the records keep their class", f"at least {agreement:.0%}"
    elif limit is None and parity.correlation is not None and parity.correlation < correlation:
        error = f"correlation {parity.correlation:.2f} with the parent", f"at least {correlation:g}"
    if error:
        received, expected = error
        raise ComponentError(f"{precision}, output {name!r}: {received}", expected, ADVICE[precision])
