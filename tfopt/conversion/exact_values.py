"""Find the operations that 8 bits break: on exact values, on columns of different scales, or in few levels.

A tensor in 8 bits has 256 values on one scale. A category code, a sentinel such as -999 or a day of the year is another
number then, so that a comparison, a cast to integers or a lookup behind it returns something else. A normalization by
columns multiplies the rounding errors of small columns. Exporters leave these operations in float. So do they if a
result has a fixed range that is far too wide: 8 bits of a softmax are steps of 1/256, in which the weights of an
attention over 500 steps are zeros. And so do masks, such as the -1e9 that an attention adds to the scores of words that
it must not see: on a scale up to -1e9 all other scores are zeros, and on a scale without it the mask is no mask.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tfopt.conversion.conversion_facts import ConversionFacts, FloatPartFacts

# ``exact`` operations need exact values: comparisons, casts from floats to integers, lookups, rounding, modulo, the
# length of a range, and phases: half a level of 500 positions is a whole radian.
# ``scaling`` ones add or multiply a number for each column. The results of a ``layer`` are sums over weights, which
# have rounding errors in 8 bits anyway, or it has a graph of its own. A ``shape`` reads no values.
Role = Literal["layer", "exact", "scaling", "shape", "plain"]
FEW = 0.25  # of a fixed range
MASK = 9_000.0  # numbers from here on mask values: -1e4, -1e9 and the smallest float are common


@dataclass(frozen=True)
class Operation:
    """An operation of a float graph in any format."""

    name: str  # unique in the graph
    kind: str  # its type in the terms of the format
    role: Role
    reads: tuple[str, ...]  # computed tensors, without constants
    writes: tuple[str, ...]
    has_mask: bool = False  # it reads a stored number beyond `MASK`


def is_mask(numbers: NDArray[Any]) -> bool:
    """Return True if one of the stored numbers that an operation reads masks values."""
    return numbers.dtype.kind == "f" and bool(np.abs(numbers).max(initial=0) >= MASK)


@dataclass(frozen=True)
class FloatPart:
    """The operations to leave in float."""

    operations: list[str] = field(default_factory=list)  # names, in topological order
    exact: dict[str, str] = field(default_factory=dict)  # names and types of those that need exact values
    scaling: dict[str, str] = field(default_factory=dict)  # names and types of those that scale columns
    shared: bool = False  # True if another operation reads a tensor that one of them reads
    fixed: dict[str, str] = field(default_factory=dict)  # names and types of those whose fixed range is too wide
    masks: dict[str, str] = field(default_factory=dict)  # names and types of those that mask values

    def __bool__(self) -> bool:
        """Return True if an operation has to stay in float."""
        return bool(self.operations)

    def facts(self) -> ConversionFacts:
        """Return the entry of the model card; empty if nothing stays in float."""
        if not self:
            return {}
        kinds: FloatPartFacts = {"exact": self.exact, "scaling": self.scaling, "operations": self.operations}
        if self.fixed:
            kinds["fixed"] = self.fixed
        if self.masks:
            kinds["masks"] = self.masks
        return {"float_part": kinds}


def find_float_part(operations: Sequence[Operation], inputs: Collection[str]) -> FloatPart:
    """Return the operations before the first layers that need exact values or scale columns, and their neighbors.

    These are the operations that such an operation depends on, those that read the same tensors, and those that follow
    until a layer: what remains of a sentinel after a comparison would determine the scale of their results. What is
    computed of shapes, such as positions, ends where it meets the results of a layer. The operations are in topological
    order.
    """
    before_layers, of_shapes = _before_layers(operations, inputs)
    seeds = [op for op in operations if op.role in ("exact", "scaling") and before_layers.intersection(op.reads)]
    tainted = before_layers.intersection(name for op in seeds for name in op.reads)
    for op in reversed(operations):  # what the seeds are computed from
        if op.role != "shape" and tainted.intersection(op.writes):
            tainted |= before_layers.intersection(op.reads)
    in_float = []
    for op in operations:
        read = tainted.intersection(op.reads)
        is_layer = op.role == "layer" and not of_shapes.issuperset(op.reads)
        if is_layer or not read or (read <= of_shapes and not before_layers.issuperset(op.reads)):
            continue
        in_float.append(op.name)
        tainted |= before_layers.intersection(op.writes)
    here, elsewhere = (
        {name for op in operations if (op.name in in_float) is inside for name in op.reads} for inside in (True, False)
    )
    exact, scaling = ({op.name: op.kind for op in seeds if op.role == role} for role in ("exact", "scaling"))
    return FloatPart(in_float, exact, scaling, not (here - of_shapes).isdisjoint(elsewhere))


def with_few_levels(
    part: FloatPart,
    results: Mapping[str, tuple[str, str]],
    ranges: Mapping[str, tuple[float, float]],
    kinds: Collection[str],
) -> FloatPart:
    """Add the operations of some types, whose results have a fixed range up to 1 in 8 bits, if they are far below.

    ``results`` has the name and type of the operation of each result.
    """
    fixed = {
        name: kind
        for result, (name, kind) in results.items()
        if kind in kinds and name not in part.operations and 0 < max(map(abs, ranges.get(result, (1, 1)))) < FEW
    }
    return replace(part, operations=[*part.operations, *fixed], fixed=fixed)


def with_masks(
    part: FloatPart,
    operations: Sequence[Operation],
    ranges: Mapping[str, tuple[float, float]],
    *,
    sums: Collection[str],
    bounded: Collection[str],
    levels: int,
    infinite: Collection[str] = (),
) -> FloatPart:
    """Add the operations that mask values, and those that follow until a layer or a range of its own.

    An operation masks if it reads a number beyond `MASK`, if it replaces values that are infinite or NaN, or if the
    range of its result is so wide that the values of an operand take less than one level.

    Args:
        part: The operations that are known.
        operations: All operations, in topological order.
        ranges: The range of each tensor of floats on the calibration records.
        sums: Types of operations that return a sum or a selection of their operands.
        bounded: Types of operations whose results have a small range, whatever they read.
        levels: Number of levels of a range.
        infinite: Tensors with infinite values or NaN, which have no range.
    """
    widths = {name: max(high, 0.0) - min(low, 0.0) for name, (low, high) in ranges.items()}
    unranged = set(infinite)
    masks: dict[str, str] = {}
    tainted: set[str] = set()
    in_float: list[str] = []
    for op in operations:
        if op.role == "layer" or not op.writes:
            continue
        width = widths.get(op.writes[0], 0.0)
        loses = op.kind in sums and any(0 < levels * widths.get(name, 0.0) < width for name in op.reads)
        if loses or (op.has_mask and op.writes[0] in widths) or unranged.intersection(op.reads):
            masks[op.name] = op.kind
        elif not tainted.intersection(op.reads) and not unranged.intersection(op.writes):
            continue
        in_float.append(op.name)
        if op.kind not in bounded and op.writes[0] in widths:
            tainted |= set(op.writes)
    added = [name for name in in_float if name not in part.operations]
    return replace(part, operations=[*part.operations, *added], masks=masks)


def describe(entry: FloatPartFacts) -> str:
    """Describe in a few words what stays in float.

    >>> describe({"exact": {"a": "Equal", "b": "Equal"}, "scaling": {"c": "Mul"}})
    'in float: exact values for Equal (2), scales of columns by Mul'
    """
    titles = {"exact values for": entry["exact"], "scales of columns by": entry["scaling"]}
    titles["masks by"] = entry.get("masks", {})
    titles["values far below the fixed range of"] = entry.get("fixed", {})
    parts = [f"{title} {count_kinds(kinds)}" for title, kinds in titles.items() if kinds]
    return f"in float: {', '.join(parts)}"


def count_kinds(kinds: Mapping[str, str]) -> str:
    """List the types of operations, each with its number if there are several.

    >>> count_kinds({"a": "Equal", "b": "Floor", "c": "Equal"})
    'Equal (2), Floor'
    """
    counts = Counter(kinds.values())
    return ", ".join(kind if number == 1 else f"{kind} ({number})" for kind, number in counts.items())


def _before_layers(operations: Sequence[Operation], inputs: Collection[str]) -> tuple[set[str], set[str]]:
    """Return the tensors that are computed from inputs, shapes, constants and each other without a layer.

    Also return those of them that are computed from shapes alone.
    """
    reached, constant, of_shapes = set(inputs), set[str](), set[str]()
    for op in operations:
        computed = [name for name in op.reads if name not in constant]
        if op.role == "shape":
            of_shapes |= set(op.writes)
        elif not computed:
            constant |= set(op.writes)
        elif of_shapes.issuperset(computed):  # also a layer of positions
            of_shapes |= set(op.writes)
        elif op.role != "layer" and (reached | of_shapes).issuperset(computed):
            reached |= set(op.writes)
    return reached | of_shapes, of_shapes
