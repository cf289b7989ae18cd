"""Test which operations stay in float: around exact values and scales of columns before the first layers."""

import numpy as np

from tfopt.conversion.exact_values import (
    FloatPart,
    Operation,
    describe,
    find_float_part,
    is_mask,
    with_few_levels,
    with_masks,
)


def op(name: str, role: str, *reads: str) -> Operation:
    return Operation(name, name.upper(), role, reads, (name,))


def test_a_comparison_keeps_its_inputs_and_their_other_readers_in_float():
    """Replace a sentinel: the select reads it too, and the absolute value passes it on."""
    part = find_float_part(
        [
            op("slice", "plain", "x"),
            op("equal", "exact", "slice"),
            op("abs", "plain", "slice"),
            op("select", "plain", "equal", "abs"),
            op("dense", "layer", "select"),
            op("relu", "plain", "dense"),
        ],
        ["x"],
    )
    assert part.operations == ["slice", "equal", "abs", "select"] and not part.shared
    assert part.exact == {"equal": "EQUAL"} and not part.scaling


def test_operations_behind_a_layer_and_other_inputs_stay_in_8_bits():
    part = find_float_part(
        [
            op("cast", "exact", "code"),
            op("lookup", "layer", "cast"),
            op("gain", "plain", "lookup"),
            op("half", "plain", "image"),
            op("dense", "layer", "half"),
            op("greater", "exact", "dense"),
            op("both", "plain", "greater", "gain"),
        ],
        ["code", "image"],
    )
    assert part.operations == ["cast"]


def test_an_operation_that_also_reads_a_layer_is_the_last_one_in_float():
    operations = [
        op("sub", "scaling", "x", "mean"),
        op("mean", "plain"),
        op("dense", "layer", "x"),
        op("concat", "plain", "sub", "dense"),
        op("relu", "plain", "concat"),
    ]
    part = find_float_part([operations[1], operations[0], *operations[2:]], ["x"])
    assert part.operations == ["sub", "concat"] and part.scaling == {"sub": "SUB"} and part.shared


def test_positions_and_their_phases_are_exact_and_end_at_a_layer():
    """As in rotary embeddings, whose length is that of a product."""
    operations = [
        op("product", "layer", "x"),
        op("shape", "shape", "product"),
        op("length", "plain", "shape"),
        op("reshape", "plain", "product", "length"),
        op("range", "exact", "length"),
        op("angle", "layer", "range"),  # a product with frequencies
        op("cos", "exact", "angle"),
        op("rotate", "plain", "reshape", "cos"),
    ]
    part = find_float_part(operations, ["x"])
    assert part.operations == ["length", "range", "angle", "cos"] and part.exact == {"range": "RANGE", "cos": "COS"}
    assert not part.shared
    assert find_float_part([op("shape", "shape", "x"), *operations[2:]], ["x"]).operations == part.operations


def test_constants_and_models_without_exact_values_are_left_alone():
    part = find_float_part([op("table", "plain"), op("less", "exact", "table"), op("dense", "layer", "x")], ["x"])
    assert not part and part.facts() == {}


def test_the_model_card_and_the_log_name_the_reasons():
    part = find_float_part([op("floor", "exact", "x"), op("mul", "scaling", "floor")], ["x"])
    entry = part.facts()["float_part"]
    assert entry == {"exact": {"floor": "FLOOR"}, "scaling": {"mul": "MUL"}, "operations": ["floor", "mul"]}
    assert describe(entry).endswith("exact values for FLOOR, scales of columns by MUL")


def test_results_far_below_their_fixed_range_stay_in_float():
    results = {name: (f"node {name}", "SOFTMAX") for name in ("weights", "classes", "unknown", "zeros")} | {
        "x": ("x", "ADD")
    }
    ranges = {"weights": (0.001, 0.01), "classes": (0.0, 0.9), "zeros": (0.0, 0.0), "x": (0.0, 0.1)}
    part = with_few_levels(FloatPart(["before"]), results, ranges, {"SOFTMAX"})
    assert part.fixed == {"node weights": "SOFTMAX"} and part.operations == ["before", "node weights"]
    assert describe(part.facts()["float_part"]) == "in float: values far below the fixed range of SOFTMAX"


ATTENTION = [
    op("product", "layer", "x"),
    op("hidden", "plain", "mask"),
    op("add", "plain", "product", "hidden"),
    op("move", "plain", "add"),
    op("softmax", "plain", "move"),
    op("scale", "plain", "softmax"),
    op("mix", "layer", "scale"),
    op("relu", "plain", "mix"),
]
RANGES = {name: (-3.0, 3.0) for name in ("x", "product", "mix")} | {name: (0.0, 1.0) for name in ("softmax", "scale")}


def masked(operations: list[Operation], ranges: dict[str, tuple[float, float]], **options) -> FloatPart:
    """Return the part with masks, in 8 bits."""
    return with_masks(FloatPart(), operations, ranges, sums={"ADD"}, bounded={"SOFTMAX"}, levels=255, **options)


def test_a_sum_in_which_an_operand_takes_less_than_one_level_stays_in_float_up_to_the_next_range():
    wide = dict.fromkeys(("hidden", "add", "move"), (-1e9, 3.0))
    part = masked(ATTENTION, RANGES | wide)
    assert part.operations == ["add", "move", "softmax"] and part.masks == {"add": "ADD"}
    assert describe(part.facts()["float_part"]) == "in float: masks by ADD"
    small = dict.fromkeys(("hidden", "add", "move"), (-1500.0, 3.0))  # 1 / 250 of the range: a level and a bit
    assert not masked(ATTENTION, RANGES | small)


def test_a_mask_stays_in_float_although_no_calibration_record_is_masked():
    marked = [op("product", "layer", "x"), Operation("hidden", "MUL", "plain", ("mask",), ("hidden",), has_mask=True)]
    unmasked = {"hidden": (0.0, 0.0), "add": (-3.0, 3.0), "move": (-3.0, 3.0)}
    part = masked([*marked, *ATTENTION[2:]], RANGES | unmasked)
    assert part.operations == ["hidden", "add", "move", "softmax"] and part.masks == {"hidden": "MUL"}
    numbers = Operation("hidden", "MUL", "plain", ("mask",), ("hidden",), has_mask=True)
    assert not masked([numbers], {})  # of integers, which have no range


def test_what_computes_and_replaces_infinite_values_stays_in_float():
    operations = [op("log", "plain", "x"), op("where", "plain", "log"), op("relu", "plain", "where")]
    part = masked(operations, {"x": (0.0, 3.0), "where": (0.0, 1.0), "relu": (0.0, 1.0)}, infinite={"log"})
    assert part.operations == ["log", "where", "relu"] and part.masks == {"where": "WHERE"}


def test_numbers_from_nine_thousand_on_are_masks():
    assert is_mask(np.float32(-1e9)) and is_mask(np.float32([0, -np.inf])) and is_mask(np.float16(-1e4))
    assert not is_mask(np.float32([0.5, 8_000])) and not is_mask(np.int32(10**9)) and not is_mask(np.float32([]))
