"""Find the operations that 8 bits break: on exact values, on columns of different scales, or in few levels.

A tensor in 8 bits has 256 values on one scale. A category code, a sentinel such as -999 or a day of the year is another
number then, so that a comparison, a cast to integers or a lookup behind it returns something else. A normalization by
columns multiplies the rounding errors of small columns. Exporters leave these operations in float. So do they if a
result has a fixed range that is far too wide: 8 bits of a softmax are steps of 1/256, in which the weights of an
attention over 500 steps are zeros.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tfopt.conversion.conversion_facts import ConversionFacts, FloatPartFacts

# ``exact`` operations need exact values: comparisons, casts from floats to integers, lookups, rounding, modulo.
# ``scaling`` ones add or multiply a number for each column. The results of a ``layer`` are sums over weights, which
# have rounding errors in 8 bits anyway, or it has a graph of its own.
Role = Literal["layer", "exact", "scaling", "plain"]
FEW = 0.25  # of a fixed range


@dataclass(frozen=True)
class Operation:
    """An operation of a float graph in any format."""

    name: str  # unique in the graph
    kind: str  # its type in the terms of the format
    role: Role
    reads: tuple[str, ...]  # computed tensors, without constants
    writes: tuple[str, ...]


@dataclass(frozen=True)
class FloatPart:
    """The operations to leave in float."""

    operations: list[str] = field(default_factory=list)  # names, in topological order
    exact: dict[str, str] = field(default_factory=dict)  # names and types of those that need exact values
    scaling: dict[str, str] = field(default_factory=dict)  # names and types of those that scale columns
    shared: bool = False  # True if another operation reads a tensor that one of them reads
    fixed: dict[str, str] = field(default_factory=dict)  # names and types of those whose fixed range is too wide

    def __bool__(self) -> bool:
        """Return True if an operation has to stay in float."""
        return bool(self.operations)

    def facts(self) -> ConversionFacts:
        """Return the entry of the model card; empty if nothing stays in float."""
        if not self:
            return {}
        kinds: FloatPartFacts = {"exact": self.exact, "scaling": self.scaling, "operations": self.operations}
        return {"float_part": {**kinds, "fixed": self.fixed} if self.fixed else kinds}


def find_float_part(operations: Sequence[Operation], inputs: Collection[str]) -> FloatPart:
    """Return the operations before the first layers that need exact values or scale columns, and their neighbors.

    These are the operations that such an operation depends on, those that read the same tensors, and those that follow
    until a layer: what remains of a sentinel after a comparison would determine the scale of their results. The
    operations are in topological order.
    """
    before_layers = _before_layers(operations, inputs)
    seeds = [op for op in operations if op.role in ("exact", "scaling") and before_layers.intersection(op.reads)]
    tainted = before_layers.intersection(name for op in seeds for name in op.reads)
    for op in reversed(operations):  # what the seeds are computed from
        if tainted.intersection(op.writes):
            tainted |= before_layers.intersection(op.reads)
    in_float = []
    for op in operations:
        if op.role == "layer" or not tainted.intersection(op.reads):
            continue
        in_float.append(op.name)
        tainted |= before_layers.intersection(op.writes)
    here, elsewhere = (
        {name for op in operations if (op.name in in_float) is inside for name in op.reads} for inside in (True, False)
    )
    exact, scaling = ({op.name: op.kind for op in seeds if op.role == role} for role in ("exact", "scaling"))
    return FloatPart(in_float, exact, scaling, not here.isdisjoint(elsewhere))


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


def describe(entry: FloatPartFacts) -> str:
    """Describe in a few words what stays in float.

    >>> describe({"exact": {"a": "Equal", "b": "Equal"}, "scaling": {"c": "Mul"}})
    'in float: exact values for Equal (2), scales of columns by Mul'
    """
    titles = {"exact values for": entry["exact"], "scales of columns by": entry["scaling"]}
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


def _before_layers(operations: Sequence[Operation], inputs: Collection[str]) -> set[str]:
    """Return the tensors that are computed from inputs, constants and each other without a layer."""
    reached, constant = set(inputs), set()
    for op in operations:
        computed = [name for name in op.reads if name not in constant]
        if not computed:
            constant |= set(op.writes)
        elif op.role != "layer" and reached.issuperset(computed):
            reached |= set(op.writes)
    return reached
