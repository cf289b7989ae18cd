"""Parity between two models: what is measured, by hand, and what is refused."""

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


def test_errors_range_and_agreement_are_over_all_batches():
    data = batches([[0, 1, 2], [4, 3, 2]], [[-6, 0, 4]])
    shift = np.array([0, 0, 3], np.float32)
    found = compare(Formula(lambda x: x), Formula(lambda x: x + shift), data)["y"]
    assert (found.max_abs_error, found.mean_abs_error, found.output_range, found.records) == (3, 1, 10, 3)
    assert found.relative_error == 0.3 and found.agreement == pytest.approx(2 / 3)  # [4, 3, 5] changed its class
    assert found.facts()["relative_error"] == 0.3 and not found.constant
    parent = np.concatenate([part["x"] for part in data])
    assert found.correlation == pytest.approx(np.corrcoef(parent.ravel(), (parent + shift).ravel())[0, 1])


def test_equal_infinities_differ_by_nothing():
    data = batches([[0, 1, -np.inf], [np.inf, 2, 3]])
    found = compare(Formula(lambda x: x), Formula(lambda x: x), data)["y"]
    assert found.max_abs_error == 0 and found.output_range == 3 and found.correlation is None


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_child_that_loses_a_number_is_refused(value):
    lose = Formula(lambda x: np.where(x == 2, np.float32(value), x))
    with pytest.raises(ComponentError, match="output 'y': NaN or infinity in 2 values"):
        compare(Formula(lambda x: x), lose, batches([[0, 1, 2]], [[2, 0, 0]]))


def test_a_parent_that_gives_nan_is_no_measure():
    with pytest.raises(ComponentError, match="the parent gives NaN in 1 values"):
        compare(Formula(lambda x: x), Formula(lambda x: x), batches([[np.nan, 1, 2]]))


def test_an_answer_that_no_longer_varies_is_seen():
    found = compare(Formula(lambda x: x), Formula(np.zeros_like), batches([[0, 1, 2], [3, 4, 5]]))["y"]
    assert found.constant and found.correlation is None
    both = compare(Formula(np.zeros_like), Formula(np.zeros_like), batches([[0, 1, 2], [3, 4, 5]]))["y"]
    assert not both.constant and both.max_abs_error == 0


def test_integers_and_text_are_right_or_wrong():
    spec = {"y": TensorSpec("int64", (None, 3))}
    whole = Formula(lambda x: x.astype(np.int64), outputs=spec)
    off = Formula(lambda x: x.astype(np.int64) + (x[:, :1] == 0), outputs=spec)
    found = compare(whole, off, batches([[0, 1, 2], [3, 4, 5]]))["y"]
    assert (found.agreement, found.max_abs_error, found.mean_abs_error) == (0.5, 1, 0.5)

    spec = {"y": TensorSpec("string", (None, 3))}
    words = Formula(lambda x: np.char.mod("%d", x).astype(object), outputs=spec)
    capitals = Formula(lambda x: np.where(x == 4, "four", np.char.mod("%d", x)).astype(object), outputs=spec)
    found = compare(words, capitals, batches([[0, 1, 2], [3, 4, 5]]))["y"]
    assert (found.agreement, found.max_abs_error) == (0.5, 1)


def test_nothing_to_compare_is_refused():
    with pytest.raises(ComponentError, match="no inputs to compare on"):
        compare(Formula(lambda x: x), Formula(lambda x: x), [])


def test_a_shape_that_the_signature_left_open_must_agree_too():
    free = {"y": TensorSpec("float32", (None, None))}
    with pytest.raises(ComponentError, match=r"shape \(1, 2\)"):
        compare(Formula(lambda x: x, outputs=free), Formula(lambda x: x[:, :2], outputs=free), batches([[0, 1, 2]]))


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
def test_signatures_agree_in_names_dtypes_and_shapes(after, agrees):
    parent, child = Formula(lambda x: x), Formula(lambda x: x, outputs=after)
    if agrees:
        check_same_signature(parent, child)
        return
    with pytest.raises(ComponentError) as error:
        check_same_signature(parent, child)
    assert "outputs became" in error.value.received and "y: float32[?,3]" in error.value.expected
