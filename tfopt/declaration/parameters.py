"""The parameters of a component: which plain types they may have, and how a value is read, checked and described."""

import json
import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from tfopt.errors import ComponentError, nearest

PLAIN: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    list[str]: {"type": "array", "items": {"type": "string"}},
}


@dataclass(frozen=True)
class Between:
    """Both ends are allowed; ``None`` leaves that end open, to what is finite: ``Annotated[float, Between(0, 1)]``."""

    low: float | None = None
    high: float | None = None

    def __contains__(self, value: float) -> bool:
        """Whether the value lies in the range (what is not finite never does)."""
        above = self.low is None or value >= self.low
        return math.isfinite(value) and above and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        """The range in words."""
        if self.high is None:
            return f"at least {self.low}"
        return f"at most {self.high}" if self.low is None else f"from {self.low} to {self.high}"


@dataclass(frozen=True)
class Reads:
    """Text, or a list of texts, in a small language of its own: ``Annotated[str, Reads(Shape.parse, "28x28x1")]``.

    Attributes:
        parse: What reads it in the step. It is called when the DAG is built too, for the ComponentError it may raise.
        example: Some value that can be read.
    """

    parse: Callable[[Any], Any]
    example: str | tuple[str, ...]


@dataclass(frozen=True)
class Parameter:
    """One parameter as its signature declares it.

    Attributes:
        name: Its name on every face.
        type: ``bool``, ``int``, ``float``, ``str`` or ``list[str]``.
        default: What it is when nobody says otherwise; None only where ``optional``.
        required: True when the signature gives no default.
        optional: Whether None (not given) is a value.
        choices: The allowed words of a ``Literal``.
        between: The allowed range of a number.
        reads: The language of a text.
        description: From the docstring.
    """

    name: str
    type: Any
    default: Any
    required: bool
    optional: bool
    choices: tuple[str, ...]
    between: Between | None
    reads: Reads | None
    description: str

    def check(self, value: Any, owner: str) -> Any:
        """Return the value in its declared type.

        Raises:
            ComponentError: When it has another type, is no choice, lies outside the range, or cannot be read.
        """
        if value is None and self.optional:
            return None
        if self.type is float and type(value) is int:
            value = float(value)
        right = all(isinstance(item, str) for item in value) if isinstance(value, list) else True
        if type(value) is not (get_origin(self.type) or self.type) or not right:
            raise self._refusal(value, owner)
        if (self.choices and value not in self.choices) or (self.between and value not in self.between):
            raise self._refusal(value, owner)
        if self.reads:
            self._read(value, owner)
        return value

    def parse(self, text: str, owner: str) -> Any:
        """Read a value from text, as a command line or an engine's string property gives it."""
        if self.type is str:
            return self.check(text, owner)
        try:
            value = json.loads(text.lower() if self.type is bool else text)
        except ValueError:
            value = [text] if self.type == list[str] else text
        return self.check(value, owner)

    def schema(self) -> dict[str, Any]:
        """This parameter in JSON Schema."""
        schema = {**PLAIN[self.type], "description": self.description}
        if self.choices:
            schema["enum"] = list(self.choices)
        if self.between:
            limits = {"minimum": self.between.low, "maximum": self.between.high}
            schema |= {key: limit for key, limit in limits.items() if limit is not None}
        if not self.required and self.default is not None:
            schema["default"] = self.default
        return schema

    def sample(self) -> Any:
        """Some allowed value, for where the real one is known only at run time."""
        if self.choices:
            return self.choices[0]
        if self.reads:
            return self.reads.example if self.type is str else list(self.reads.example)
        return self.type(self.between.low or self.between.high or 0) if self.between else self.type()

    @property
    def expected(self) -> str:
        """The allowed values in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        word = "list of strings" if self.type == list[str] else self.type.__name__
        return f"{word} {self.between}" if self.between else word

    def _read(self, value: Any, owner: str) -> None:
        assert self.reads
        try:
            self.reads.parse(value)
        except ComponentError as error:
            raise ComponentError(f"{owner}: {self.name}: {error.received}", error.expected, error.fix) from error

    def _refusal(self, value: Any, owner: str) -> ComponentError:
        hint = f"pass {self.name}={self.default!r} (the default)" if self.default is not None else "change the value"
        if self.choices and isinstance(value, str):
            hint = nearest(value, self.choices)
        return ComponentError(f"{owner}: {self.name}={value!r}", self.expected, hint)


def read_parameter(name: str, hint: Any, default: Any, required: bool, description: str) -> Parameter:
    """Build a Parameter from one annotation of a signature.

    >>> read_parameter("sparsity", Annotated[float, Between(0, 1)], 0.5, False, "").expected
    'float from 0 to 1'

    Raises:
        TypeError: When the annotation is none of the plain types; addressed to the component's author.
    """
    optional = get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)
    if optional:
        hint = next(part for part in get_args(hint) if part is not type(None))
    between, reads = None, None
    if get_origin(hint) is Annotated:
        hint, limit = get_args(hint)[:2]
        between, reads = (limit, None) if isinstance(limit, Between) else (None, limit)
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    hint = str if choices else hint
    if hint not in PLAIN:
        raise TypeError(f"parameter {name}: {hint} is not one of bool, int, float, str, list[str], Literal")
    return Parameter(name, hint, default, required, optional, choices, between, reads, description)
