"""Test einsums as products of matrices: equal values for all kinds of equations, and those that are left alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfopt.conversion.einsum_products import EinsumProduct, Operations


class Arrays(Operations[np.ndarray]):
    """NumPy's operations; each is noted. A size of 0 is that of the array."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def transpose(self, value, axes):
        self.made.append("transpose")
        return value.transpose(axes)

    def reshape(self, value, sizes):
        self.made.append("reshape")
        return value.reshape([size or value.shape[axis] for axis, size in enumerate(sizes)])

    def multiply(self, left, right):
        self.made.append("multiply")
        assert right.ndim in (2, left.ndim) and left.shape[: right.ndim - 2] == right.shape[:-2]
        return left @ right


def operands(equation: str, sizes: dict[str, int]) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [draw.normal(size=[sizes[label] for label in part]) for part in equation.split("->")[0].split(",")]


def parse(equation: str) -> EinsumProduct | None:
    return EinsumProduct.parse(equation, [len(part) for part in equation.split("->")[0].split(",")])


SIZES = dict(zip("abcdefgh", (2, 3, 4, 5, 6, 7, 2, 3), strict=True))


@pytest.mark.parametrize(
    ("equation", "made"),
    [
        ("ab,bc->ac", "multiply"),
        ("ab,cb->ac", "transpose multiply"),
        ("abc,cd->abd", "multiply"),
        ("abc,cde->abde", "reshape multiply reshape"),  # a projection to heads
        ("abcd,cde->abe", "reshape reshape multiply"),  # heads to an output
        ("aecd,abcd->acbe", "transpose transpose multiply"),  # keys and queries: the second operand is the left factor
        ("acbe,aecd->abcd", "transpose multiply transpose"),  # weights and values
        ("abc,dc->dab", "transpose multiply transpose"),  # axes of rows are not merged for an order
        ("abcd,aefd->abcef", "reshape transpose reshape multiply reshape"),  # rows and columns of a batch are merged
        ("ed,abcd->abce", "transpose multiply"),  # the operand with more axes is the left factor
        ("cde,abc->abde", "reshape multiply reshape"),
    ],
)
def test_an_einsum_is_a_product_with_as_few_operations_as_it_needs(equation, made):
    product, operations = parse(equation), Arrays()
    values = operands(equation, SIZES)
    np.testing.assert_allclose(product.write(operations, values, SIZES), np.einsum(equation, *values), rtol=1e-12)
    assert " ".join(operations.made) == made


@given(st.permutations("abcdef"), st.permutations("abcdef"), st.permutations("abcdef"), st.data())
def test_every_order_of_axes_gives_the_values_of_the_einsum(first, second, third, data):
    parts = {label: data.draw(st.sampled_from(["batch", "rows", "contracted", "columns"])) for label in "abcdef"}
    places = {"batch": (1, 1, 1), "rows": (1, 0, 1), "contracted": (1, 1, 0), "columns": (0, 1, 1)}
    left, right, output = (
        "".join(label for label in order if places[parts[label]][number])
        for number, order in enumerate((first, second, third))
    )
    equation = f"{left},{right}->{output}"
    product = parse(equation) if left and right and output else None
    assert (product is not None) == ({"rows", "contracted", "columns"} <= set(parts.values()))
    if product:
        values = operands(equation, SIZES)
        result = product.write(Arrays(), values, SIZES)
        np.testing.assert_allclose(result, np.einsum(equation, *values), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "equation",
    ["ab->ba", "aab,bc->ac", "ab,bc", "abd,bc->ac", "ab,bc->abc", "ab,ab->a", "a,ab->b", "ab,bc->acc"],
)
def test_others_are_no_products(equation):
    assert parse(equation) is None


@pytest.mark.parametrize(
    ("equation", "unknown", "is_written"),
    [
        ("abc,cde->abde", "abc", True),
        ("abc,cde->abde", "d", False),
        ("abcd,cde->abe", "abe", True),
        ("abcd,cde->abe", "c", False),
        ("aecd,abcd->acbe", "abcde", True),
        ("abcd,aed->abce", "ade", True),
        ("abcd,aed->abce", "b", False),  # rows of a batch are merged
    ],
)
def test_sizes_must_be_known_only_where_axes_are_merged(equation, unknown, is_written):
    sizes, values = {label: size for label, size in SIZES.items() if label not in unknown}, operands(equation, SIZES)
    result = parse(equation).write(Arrays(), values, sizes)
    assert (result is not None) == is_written
    if is_written:
        np.testing.assert_allclose(result, np.einsum(equation, *values), rtol=1e-12)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...c,cd->...d", [(2, 3, 4), (4, 5)]),
        ("...c,cd->...d", [(2, 4), (4, 5)]),
        ("a...c,cd->a...d", [(2, 3, 6, 4), (4, 5)]),
        ("dc,...c->...d", [(5, 4), (2, 3, 4)]),
    ],
)
def test_dots_in_one_operand_are_its_other_axes(equation, shapes):
    values = [np.random.default_rng(0).normal(size=shape) for shape in shapes]
    product = EinsumProduct.parse(equation, [len(shape) for shape in shapes])
    result = product.write(Arrays(), values, product.known_sizes(shapes))
    np.testing.assert_allclose(result, np.einsum(equation, *values), rtol=1e-12)


def test_dots_in_both_operands_may_broadcast():
    assert EinsumProduct.parse("...bc,...cd->...bd", [3, 3]) is None
