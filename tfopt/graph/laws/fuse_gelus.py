"""Write a GELU in the form for which TensorFlow with oneDNN has a kernel.

    0.5 x erfc(-c x) = 0.5 x (1 + erf(x / (1 / c))) = 0.5 x (erf(c x) + 1)    for c = 1 / sqrt(2)

    before    x -> Mul(0.5);  x -> Mul(-c) -> Erfc;  both -> Mul -> y
    after     x -> Mul(0.5);  x -> Mul(c) -> Erf -> AddV2(1);  both -> Mul -> y

    0.5 x (1 + tanh(d (x + e x^3))) = 0.5 (tanh(d (x + (e x) x^2)) + 1) x

    before    x -> Pow(3) -> Mul(e) -> AddV2(x) -> Mul(d) -> Tanh -> AddV2(1);  x -> Mul(0.5);  both -> Mul -> y
    after     x -> Mul(e), Square -> Mul -> AddV2(x) -> Mul(d) -> Tanh -> AddV2(1) -> Mul(0.5);  x -> both -> Mul -> y

TensorFlow 2.21 writes the exact GELU with Erfc, older versions with Erf of a quotient. Of the forms after it, with a
MatMul and BiasAdd before it, TensorFlow with oneDNN makes a single operation; Erf is also faster than Erfc by itself.
erfc is more precise where x is below -3, and the GELU close to 0: the difference is within a rounding error of 1, times
x. docs/grappler.md says which exporters find each form.

Grappler runs before TensorFlow looks for the forms. It sorts the factors of a product by the names of their nodes, and
a number goes to the first one, so that names decide on the form: they are chosen accordingly.

Requires: floats, not of 64 bits in place of Erfc, since TensorFlow's Erf of an infinity is NaN there; both factors from
the same x; nothing else reads what is computed in between.
"""

import numpy as np

from tfopt.graph.law import Graph, Maker, Match, Node, Op, Pattern, SearchLaw, Tensor, const, matches, one_of, op
from tfopt.graph.matching.linear_ops import FLOATS

# Of the numbers. TensorFlow accepts 0.01, and computes with its own.
PRECISION = {"float16": 1e-3, "bfloat16": 4e-3, "float32": 1e-5, "float64": 1e-5}
NUMBERS = {"half": 0.5, "one": 1.0, "power": 3.0}  # by role, as in the equations
TANH = {"scale": np.sqrt(2 / np.pi), "cubic": 0.044715}  # d and e


def _plus_one_pattern(data: Pattern) -> Op:
    return op(("Add", "AddV2"), const("one"), data, role="sum")


ERFC = op("Erfc", op(("Mul", "RealDiv"), "x", const("scale"), role="scaled"), role="erfc")
ERF = _plus_one_pattern(op("Erf", op("RealDiv", "x", const("scale"), role="scaled"), role="erf"))
CUBE = op("Mul", const("cubic"), op("Pow", "x", const("power"), role="cube"), role="term")
SCALED = op("Mul", const("scale"), op("AddV2", "x", CUBE, role="total"), role="scaled")
NORMAL = one_of(ERFC, ERF, _plus_one_pattern(op("Tanh", SCALED, role="tanh")))
PATTERNS = (
    op("Mul", op("Mul", const("half"), "x", role="product"), NORMAL),
    op("Mul", op("Mul", const("half"), NORMAL, role="product"), "x"),
    op("Mul", op("Mul", "x", NORMAL, role="product"), const("half")),
)


def find(graph: Graph, root: Node) -> Match | str | None:
    for match in matches(graph, root, PATTERNS):
        if _is_gelu(match):
            return _refusal(match) or match
    return None


def rewrite(match: Match, make: Maker) -> list[Tensor]:
    """Return the product of both factors; names decide which one TensorFlow sees first."""
    factors = _approximate(match, make) if match.has("tanh") else _exact(match, make)
    return [make.node("Mul", *factors, like=make.root)]


def _is_gelu(match: Match) -> bool:
    """Return whether the numbers are a GELU's, the scale as far as the dtype allows."""
    if any(match.has(role) and _number(match, role) != number for role, number in NUMBERS.items()):
        return False
    scale = np.sqrt(2) if match.node("scaled").op == "RealDiv" else np.sqrt(0.5)
    expected = TANH if match.has("tanh") else {"scale": -scale if match.has("erfc") else scale}
    numbers = [(_number(match, role), number) for role, number in expected.items()]
    return all(abs((own or 0) / number - 1) <= PRECISION.get(match.dtype(), 0) for own, number in numbers)


def _number(match: Match, role: str) -> float | None:
    """Return the value of a constant that is one float."""
    array = match.array(role)
    return float(array) if array.ndim == 0 and array.dtype.name in FLOATS else None


def _refusal(match: Match) -> str | None:
    if match.node().name in match.graph.fed:
        return "it is fed from outside"
    if match.dtype() == "float64" and match.has("erfc"):
        return "Erf of an infinity is NaN in 64 bits"
    return match.inner_refusal()


def _exact(match: Match, make: Maker) -> list[Tensor]:
    """Add the factors of the exact GELU: x / 2 comes first, by name."""
    scale = abs(_number(match, "scale") or 0.0)
    scale = 1 / scale if match.node("scaled").op == "RealDiv" else scale
    erf = make.node("Erf", _times(make, match.tensor("x"), scale), like=make.root)
    return [_times(make, match.tensor("x"), 0.5, "half"), _plus_one(make, erf)]


def _approximate(match: Match, make: Maker) -> list[Tensor]:
    """Add the factors of the GELU with tanh: by name, e x comes before x^2, and half the sum before x."""
    like, data = make.root, match.tensor("x")
    scale, cubic = (_number(match, role) or 0.0 for role in ("scale", "cubic"))
    square = make.node("Square", data, like=like, role="square")
    cube = make.node("Mul", _times(make, data, cubic, "part"), square, like=like)
    tanh = make.node("Tanh", _times(make, make.node("AddV2", data, cube, like=like), scale), like=like)
    half = _times(make, _plus_one(make, tanh), 0.5)
    if len(data.node) > 1:
        name = make.graph.fresh(f"{data.node[:-1]}-half")
        make.graph.rename(half.node, name)
        half = Tensor(name)
    return [half, data]


def _plus_one(make: Maker, tensor: Tensor) -> Tensor:
    return make.node("AddV2", tensor, make.typed("constant", 1, make.root), like=make.root, role="sum")


def _times(make: Maker, tensor: Tensor, number: float, role: str = "") -> Tensor:
    return make.node("Mul", tensor, make.typed("constant", number, make.root), like=make.root, role=role)


LAW = SearchLaw(("Mul",), find, rewrite, rounds=True, after={"fold_signs": "the sign is in the constant then"})
