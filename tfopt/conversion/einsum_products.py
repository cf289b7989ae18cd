"""Einsums of two operands as products of matrices, which every runtime has kernels for and every quantizer knows.

Keras' attention layers compute projections and the products of heads by einsums, such as ``abc,cde->abde``. NNCF leaves
them in float, ONNX Runtime's dynamic quantizer as well, and tf2onnx computes shapes for them in each call.
"""

import re
import string
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Generic, TypeVar

Value = TypeVar("Value")

DOTS = "..."
EQUATION = re.compile(r"([A-Za-z]+),([A-Za-z]+)->([A-Za-z]+)")


class Operations(ABC, Generic[Value]):
    """Operations of a format that einsums become; of constants they are constants."""

    @abstractmethod
    def transpose(self, value: Value, axes: Sequence[int]) -> Value:
        """Return the value with its axes in this order."""

    @abstractmethod
    def reshape(self, value: Value, sizes: Sequence[int]) -> Value:
        """Return the value with these sizes; 0 is the size that it has in this axis, and -1 the one that is left."""

    @abstractmethod
    def multiply(self, left: Value, right: Value) -> Value:
        """Return the products of the matrices in the last axes.

        The axes before are the same, or the right value has none.
        """


@dataclass(frozen=True)
class EinsumProduct:
    """An einsum that is a product of matrices if its axes are sorted and merged; each axis has a label.

    Attributes:
        operands: Labels of the left and the right factor.
        output: Labels of the output.
        is_swapped: True if the left factor is the second operand of the einsum.
        batch: Labels of both factors and the output, in the order of the output.
        rows: Labels of the left factor and the output.
        contracted: Labels of both factors only, in the order of the right one.
        columns: Labels of the right factor and the output.
    """

    operands: tuple[str, str]
    output: str
    is_swapped: bool
    batch: str
    rows: str
    contracted: str
    columns: str

    @classmethod
    def parse(cls, equation: str, ranks: Sequence[int]) -> "EinsumProduct | None":
        """Return the product of an equation; None for traces, sums of one operand, and products without both sides.

        Dots in one operand stand for as many axes as its rank leaves; with dots in both, axes could be broadcast.
        """
        match = EQUATION.fullmatch(_replace_dots(equation.replace(" ", ""), ranks))
        if match is None or any(len(set(labels)) < len(labels) for labels in match.groups()):
            return None
        first, second, output = match.groups()
        products = [cls._order((first, second), output, False), cls._order((second, first), output, True)]
        product = max(products, key=lambda one: (0 if one.batch else len(one.rows), one.natural == output))
        labels = product.batch + product.rows + product.contracted + product.columns
        is_product = (
            product.rows and product.contracted and product.columns and set(labels) == {*first, *second, *output}
        )
        return product if is_product else None

    @classmethod
    def _order(cls, operands: tuple[str, str], output: str, is_swapped: bool) -> "EinsumProduct":
        left, right = operands
        batch = "".join(label for label in output if label in left and label in right)
        rows = "".join(label for label in output if label in left and label not in right)
        columns = "".join(label for label in output if label in right and label not in left)
        contracted = "".join(label for label in right if label in left and label not in output)
        return cls(operands, output, is_swapped, batch, rows, contracted, columns)

    @property
    def natural(self) -> str:
        """The labels of the product of matrices, in its order."""
        return self.batch + self.rows + self.columns

    def known_sizes(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """Return the sizes by label that the shapes of the operands have; others are negative."""
        operands = reversed(self.operands) if self.is_swapped else self.operands
        pairs = [zip(labels, shape, strict=True) for labels, shape in zip(operands, shapes, strict=True)]
        return {label: size for pair in pairs for label, size in pair if size >= 0}

    def write(self, operations: Operations[Value], operands: Sequence[Value], sizes: Mapping[str, int]) -> Value | None:
        """Return the output of the einsum; None if sizes that are merged or split are not known.

        Args:
            operations: Those of the format.
            operands: In the order of the einsum.
            sizes: The known sizes, by label.
        """
        rows = self.rows if self.batch else ""  # without a batch the axes of rows stay apart
        merged = [labels for labels in (rows, self.contracted, self.columns) if len(labels) > 1]
        if not set("".join(merged)) <= sizes.keys():
            return None

        def merge(labels: str) -> int:
            return prod(sizes[label] for label in labels) if len(labels) > 1 else 0

        def arrange(place: int, order: str, shape: list[int]) -> Value:
            labels, value = self.operands[place], operands[place != self.is_swapped]
            if labels != order:
                value = operations.transpose(value, [labels.index(label) for label in order])
            return value if len(shape) == len(order) else operations.reshape(value, shape)

        before = [0] * len(self.batch)
        height = [merge(rows)] if self.batch else [0] * len(self.rows)
        left = arrange(0, self.batch + self.rows + self.contracted, [*before, *height, -1])
        right = arrange(1, self.batch + self.contracted + self.columns, [*before, merge(self.contracted), -1])
        value = operations.multiply(left, right)
        if len(before) + len(height) + 1 < len(self.natural):
            split = [sizes[label] for label in rows] if len(rows) > 1 else height
            last = [sizes[label] for label in self.columns] if len(self.columns) > 1 else [-1]
            value = operations.reshape(value, [*before, *split, *last])
        if self.natural != self.output:
            value = operations.transpose(value, [self.natural.index(label) for label in self.output])
        return value


def _replace_dots(equation: str, ranks: Sequence[int]) -> str:
    """Return the equation with unused labels in place of the dots in one operand and in the output."""
    operands = equation.partition("->")[0].split(",")
    for operand, rank in zip(operands, ranks, strict=False):
        if operand.count(DOTS) == equation.partition("->")[0].count(DOTS) == 1:
            unused = [label for label in string.ascii_letters if label not in equation]
            return equation.replace(DOTS, "".join(unused[: rank - len(operand) + len(DOTS)]))
    return equation
