"""Join two constants, with the roles ``first`` and ``second``, into one, and find reasons against it.

x + c, x - c = x + (-c), c - x        x * c, x / c = x * (1 / c), c / x
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfopt.graph.law import Match
from tfopt.graph.matching.linear_ops import FLOATS

Constant = NDArray[np.generic]
SUMS, PRODUCTS = ("AddV2", "Add", "Sub"), ("Mul", "RealDiv")
INVERSES = ("Sub", "RealDiv")
MIN_SUM = 1e-3  # smallest sum of two floats, as a fraction of the larger summand
LEAST, MOST = 1e-6, 1e6  # factors


class Term(NamedTuple):
    """The constant c of ``x + c`` and ``x * c``, or of ``c - x`` and ``c / x``, which are inverse.

    Floats are in float64, and integers in their own type, so that they wrap around.
    """

    constant: Constant
    is_inverse: bool


def read_term(match: Match, role: str, constant: str) -> Term:
    """Return the constant of the operation with a role; it is negated in ``x - c``, and a reciprocal in ``x / c``."""
    node, array = match.node(role), widened(match.array(constant))
    is_inverse = node.op in INVERSES and node.inputs[0] == match.tensor(constant)
    if is_inverse or node.op not in INVERSES:
        return Term(array, is_inverse)
    with np.errstate(all="ignore"):
        return Term(np.asarray(np.negative(array) if node.op == "Sub" else np.divide(1, array)), is_inverse)


def join(op: str, first: Constant, second: Constant) -> Constant:
    """Return the sum, product, difference or quotient of two constants."""
    functions = {"Sub": np.subtract, "Mul": np.multiply, "RealDiv": np.divide}
    with np.errstate(all="ignore"):
        return np.asarray(functions.get(op, np.add)(first, second))


def refusal(constants: Sequence[Constant], *, divided: bool) -> str | None:
    """Return why constants, some of them divided, cannot be joined because of their types or shapes, or None."""
    like = constants[0]
    if not is_integer(like) and like.dtype.name not in FLOATS:
        return f"the constants are {like.dtype.name}"
    return "integers are divided" if divided and is_integer(like) else growth_refusal(*constants)


def growth_refusal(*constants: Constant) -> str | None:
    """Return why the joined constant would be larger than each, or has no shape; None if neither is so."""
    try:
        size = int(np.prod(np.broadcast_shapes(*(array.shape for array in constants))))
    except ValueError:
        return "the shapes of the constants cannot be broadcast"
    return "the joined constant would be larger" if size > max(array.size for array in constants) else None


def range_refusal(joined: Constant, dtype: np.dtype[np.generic]) -> str | None:
    """Return why a joined constant of floats, computed in float64, does not fit its type; None if it does."""
    with np.errstate(over="ignore"):
        is_finite = np.isfinite(joined.astype(dtype).astype(np.float64)).all()
    return None if is_finite else "the joined constant would not be finite"


def summand_refusal(terms: Sequence[Constant], total: Constant, dtype: np.dtype[np.generic]) -> str | None:
    """Return why a sum of constants is not finite, or far smaller than they are; None if neither, or for integers."""
    if is_integer(total):
        return None
    cancels = any(np.any(np.abs(total) < MIN_SUM * np.abs(term.astype(np.float64))) for term in terms)
    reason = "the constants cancel, and the result would be rounded differently" if cancels else None
    return range_refusal(total, dtype) or reason


def factor_refusal(*factors: Constant) -> str | None:
    """Return why products with these factors may overflow in one form only; None if not, or for integers."""
    sizes = [np.abs(factor.astype(np.float64)) for factor in factors if not is_integer(factor)]
    outside = any(((size < LEAST) | (size > MOST)).any() for size in sizes)
    return "a factor is so small or large that one form may overflow" if outside else None


def widened(array: Constant) -> Constant:
    """Return floats in float64, and integers as they are, so that they wrap around."""
    return array if is_integer(array) else array.astype(np.float64)


def is_integer(array: Constant) -> bool:
    """Return whether a constant has an integer type, in which sums and products wrap around."""
    return bool(np.issubdtype(array.dtype, np.integer))
