"""Test the parity of two models against values computed by hand."""

import numpy as np
import pytest

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError
from tfopt.measurement.parity import check_same_signature, compare
from tfopt.runtimes import Runtime

FLOATS = TensorSpec("float32", (None, 3))


class Formula(Runtime):
    """A runtime that is one numpy expression."""

    def __init__(self, function, inputs=None, outputs=None):
        self.function = function
        self.inputs = inputs or {"x": FLOATS}
        self.outputs = outputs or {"y": FLOATS}

    def call(self, arrays):
        return {name: self.function(arrays["x"]) for name in self.outputs}


def batches(*rows):
    return [{"x": np.array(part, np.float32)} for part in rows]


def test_errors_range_and_agreement_cover_all_batches():
    data = batches([[0, 1, 2], [4, 3, 2]], [[-6, 0, 4]])
    shift = np.array([0, 0, 3], np.float32)
    parity = compare(Formula(lambda x: x), Formula(lambda x: x + shift), data)["y"]
    assert (parity.max_abs_error, parity.mean_abs_error, parity.output_range, parity.records) == (3, 1, 10, 3)
    assert parity.relative_error == 0.3 and parity.agreement == pytest.approx(2 / 3)  # [4, 3, 5] changed its class
    assert parity.facts()["relative_error"] == 0.3 and not parity.constant
    parent = np.concatenate([part["x"] for part in data])
    assert parity.correlation == pytest.approx(np.corrcoef(parent.ravel(), (parent + shift).ravel())[0, 1])


@pytest.mark.parametrize(
    "rows, agreement",
    [
        ([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]], 0.5),
        ([[0.2, 0.52, 0.3], [0.1, 0.1, 0.8]], 0.5),  # rounded
        ([[2, 5, 3], [1, 1, 8]], 0.5),  # logits
        ([[0.9, 0.91, 0.1], [0.1, 0.1, 0.8]], None),  # labels or pixels, each with a probability of its own
    ],
)
def test_independent_probabilities_are_no_classes(rows, agreement):
    shift = np.array([0.03, -0.03, 0], np.float32)
    parity = compare(Formula(lambda x: x), Formula(lambda x: x[:, [1, 0, 2]] + shift), batches(rows))["y"]
    assert parity.agreement == agreement and parity.correlation is not None


def test_a_nearly_constant_output_has_errors_relative_to_its_largest_value_in_rewritten_graphs():
    parity = compare(
        Formula(lambda x: -5 + x / 1000), Formula(lambda x: -5 + x / 900), batches([[0, 1, 2]], [[3, 4, 9]])
    )["y"]
    assert parity.relative_error == pytest.approx(1 / 9, rel=1e-3)
    assert parity.rewrite_error == pytest.approx(0.001 / (0.01 * 5), rel=1e-3)
    assert "largest" not in parity.facts()  # model cards of other releases do not have it


def test_equal_infinities_have_no_difference():
    data = batches([[0, 1, -np.inf], [np.inf, 2, 3]])
    parity = compare(Formula(lambda x: x), Formula(lambda x: x), data)["y"]
    assert parity.max_abs_error == 0 and parity.output_range == 3 and parity.correlation is None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_child_with_new_nan_or_infinity_is_rejected(value):
    lose = Formula(lambda x: np.where(x == 2, np.float32(value), x))
    with pytest.raises(ComponentError, match="output 'y': NaN or infinity in 2 values"):
        compare(Formula(lambda x: x), lose, batches([[0, 1, 2]], [[2, 0, 0]]))


def test_a_parent_with_nan_is_rejected():
    with pytest.raises(ComponentError, match="the parent returns NaN in 1 values"):
        compare(Formula(lambda x: x), Formula(lambda x: x), batches([[np.nan, 1, 2]]))


def test_a_constant_output_is_detected():
    parity = compare(Formula(lambda x: x), Formula(np.zeros_like), batches([[0, 1, 2], [3, 4, 5]]))["y"]
    assert parity.constant and parity.correlation is None
    both = compare(Formula(np.zeros_like), Formula(np.zeros_like), batches([[0, 1, 2], [3, 4, 5]]))["y"]
    assert not both.constant and both.max_abs_error == 0


def test_integers_and_text_are_compared_for_equality():
    spec = {"y": TensorSpec("int64", (None, 3))}
    whole = Formula(lambda x: x.astype(np.int64), outputs=spec)
    off = Formula(lambda x: x.astype(np.int64) + (x[:, :1] == 0), outputs=spec)
    parity = compare(whole, off, batches([[0, 1, 2], [3, 4, 5]]))["y"]
    assert (parity.agreement, parity.max_abs_error, parity.mean_abs_error) == (0.5, 1, 0.5)

    spec = {"y": TensorSpec("string", (None, 3))}
    words = Formula(lambda x: np.char.mod("%d", x).astype(object), outputs=spec)
    capitals = Formula(lambda x: np.where(x == 4, "four", np.char.mod("%d", x)).astype(object), outputs=spec)
    parity = compare(words, capitals, batches([[0, 1, 2], [3, 4, 5]]))["y"]
    assert (parity.agreement, parity.max_abs_error) == (0.5, 1)


def test_no_batches_are_rejected():
    with pytest.raises(ComponentError, match="no inputs to compare on"):
        compare(Formula(lambda x: x), Formula(lambda x: x), [])


def test_a_child_with_values_where_the_parent_has_none_is_rejected():
    def positive(x):
        return x[x.min(axis=1) > 0]

    inputs = batches([[1, 2, 3]], [[-1, 2, 3]])
    assert compare(Formula(positive), Formula(positive), inputs)["y"].records == 1
    with pytest.raises(ComponentError, match=r"output 'y': shape \(1, 3\)"):
        compare(Formula(positive), Formula(lambda x: x), inputs)


def test_outputs_without_values_prove_nothing():
    with pytest.raises(ComponentError, match=r"all outputs of the parent are empty for here \(x: float32\[1,3\]\)"):
        compare(Formula(lambda x: x[:0]), Formula(lambda x: x[:0]), batches([[1, 2, 3]]), "here")


def test_dynamic_shapes_of_outputs_must_be_equal():
    free = {"y": TensorSpec("float32", (None, None))}
    with pytest.raises(ComponentError, match=r"shape \(1, 2\)"):
        compare(Formula(lambda x: x, outputs=free), Formula(lambda x: x[:, :2], outputs=free), batches([[0, 1, 2]]))


def test_outputs_with_two_axes_of_the_batch_are_compared():
    distances = lambda x: x @ x.T  # noqa: E731
    free = {"y": TensorSpec("float32", (None, None))}
    values = batches([[1, 2, 0]], [[3, 4, 0], [5, 6, 0]])
    (parity,) = compare(
        Formula(distances, outputs=free), Formula(lambda x: distances(x) + 1, outputs=free), values
    ).values()
    assert (parity.records, parity.max_abs_error) == (5, 1)


@pytest.mark.parametrize(
    ("after", "agrees"),
    [
        ({"y": TensorSpec("float32", (8, 3))}, True),  # a batch size may become fixed
        ({"y": TensorSpec("float32", (None, None))}, True),
        ({"y": TensorSpec("float32", (None, 4))}, False),
        ({"y": TensorSpec("float32", (None, 3, 1))}, False),
        ({"y": TensorSpec("float16", (None, 3))}, False),
        ({"z": TensorSpec("float32", (None, 3))}, False),
        ({"y": FLOATS, "z": FLOATS}, False),
    ],
)
def test_signatures_must_have_equal_names_dtypes_and_shapes(after, agrees):
    parent, child = Formula(lambda x: x), Formula(lambda x: x, outputs=after)
    if agrees:
        check_same_signature(parent, child)
        return
    with pytest.raises(ComponentError) as error:
        check_same_signature(parent, child)
    assert "outputs became" in error.value.received and "y: float32[?,3]" in error.value.expected
