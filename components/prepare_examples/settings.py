"""What was asked for, parsed: the splits with their weights, and what is packed into one feature."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tfopt.errors import ComponentError


@dataclass(frozen=True)
class Splits:
    """Names and integer weights, in the order given."""

    weights: tuple[tuple[str, int], ...]

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Self:
        """Read ``["train:8", "eval:2"]``.

        Raises:
            ComponentError: On another syntax, or a name that stands twice.
        """
        found = [re.fullmatch(r"([A-Za-z0-9_.-]+):([1-9][0-9]*)", text.strip()) for text in texts]
        names = [match[1] for match in found if match]
        if not texts or None in found or len(set(names)) < len(texts):
            raise ComponentError(
                f"splits={list(texts)}",
                "different names (letters, digits, _ . -) with whole weights from 1",
                'write splits=["train:8", "eval:2"]',
            )
        return cls(tuple((match[1], int(match[2])) for match in found if match))

    @property
    def names(self) -> list[str]:
        """The names, in the order given."""
        return [name for name, _ in self.weights]

    @property
    def total(self) -> int:
        """The sum of the weights."""
        return sum(weight for _, weight in self.weights)

    def at(self, position: int) -> str:
        """The split of a 64-bit position, each taking its weight's share of the range.

        >>> Splits.parse(["train:3", "eval:1"]).at(2**63)
        'train'
        """
        slot = position * self.total >> 64
        for name, weight in self.weights:
            slot -= weight
            if slot < 0:
                return name
        raise ValueError(position)


@dataclass(frozen=True)
class Pack:
    """One float feature that takes all the values of a row but the label."""

    name: str
    shape: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``image=28x28x1``.

        Raises:
            ComponentError: On another syntax.
        """
        match = re.fullmatch(r"([^=\s]+)=([1-9][0-9]*(?:x[1-9][0-9]*)*)", text.strip())
        if not match:
            raise ComponentError(f"pack={text!r}", "a name and its sizes", 'write pack="image=28x28x1"')
        return cls(match[1], tuple(int(size) for size in match[2].split("x")))

    @property
    def size(self) -> int:
        """How many values it takes."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        """As it was written."""
        return f"{self.name}={'x'.join(map(str, self.shape))}"

    def check(self, label: str, size: int, where: str) -> None:
        """Raise ComponentError unless it takes exactly the values there are, and leaves the label its name."""
        if self.name == label:
            raise ComponentError(f"pack={self}, and the label is {label!r} too", "two names", "pack under another name")
        if self.size != size:
            raise ComponentError(
                f"pack={self}: {self.size} values; {where} has {size} beside {label!r}",
                f"{size} values",
                "give sizes whose product is that number",
            )


@dataclass(frozen=True)
class Sparse:
    """A feature of which only some values are stored: one feature of a record has their positions, another has them."""

    name: str
    positions: str
    values: str
    size: int

    @classmethod
    def parse(cls, texts: Sequence[str]) -> tuple[Self, ...]:
        """Read ``["words=word_ids:counts:5000"]``.

        Raises:
            ComponentError: On another syntax, or a name that stands twice.
        """
        found = [re.fullmatch(r"(\w+)=([^:=\s]+):([^:=\s]+):([1-9][0-9]*)", text.strip()) for text in texts]
        names = [name for match in found if match for name in match.groups()[:3]]
        if None in found or len(set(names)) < len(names):
            raise ComponentError(
                f"sparse={list(texts)}",
                "a new name, the feature with positions, the one with values, and how many positions there are",
                'write sparse=["words=word_ids:counts:5000"], with different names',
            )
        return tuple(cls(match[1], match[2], match[3], int(match[4])) for match in found if match)


@dataclass(frozen=True)
class Request:
    """The component's parameters, checked."""

    label: str
    label_at: str
    splits: Splits
    pack: Pack | None
    format: str
    header: str
    max_rejected: float
    seed: int
    sparse: tuple[Sparse, ...] = ()
