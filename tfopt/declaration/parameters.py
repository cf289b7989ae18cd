"""Parameters of components and pipelines: allowed types, and how a value is parsed, checked and described."""

import json
import math
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import docstring_parser

from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError
from tfopt.value_types import JsonObject

PLAIN: dict[Any, JsonObject] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    list[str]: {"type": "array", "items": {"type": "string"}},
}


@dataclass(frozen=True)
class Between:
    """An inclusive range of finite numbers: ``Annotated[float, Between(0, 1)]``. None leaves an end open."""

    low: float | None = None
    high: float | None = None

    def __contains__(self, value: float) -> bool:
        """Return True if the value is finite and lies in the range."""
        above = self.low is None or value >= self.low
        return math.isfinite(value) and above and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        """Return the range in words."""
        if self.high is None:
            return f"at least {self.low}"
        return f"at most {self.high}" if self.low is None else f"from {self.low} to {self.high}"


@dataclass(frozen=True)
class MappingForm:
    """The form of a text as a mapping, in which a run file may contain it, too.

    Attributes:
        text: Converts the mapping, whose values are texts, to the text; raises ComponentError.
        schema: Returns the JSON Schema of the mapping.
    """

    text: Callable[[Mapping[str, str]], str]
    schema: Callable[[], JsonObject]


@dataclass(frozen=True)
class Reads:
    """The parser of a text, or of a list of texts: ``Annotated[str, Reads(Shape.parse, "28x28x1")]``.

    Attributes:
        parse: The function that the step parses the value with. It is also called when the DAG is built, so that its
            ComponentError is raised before anything runs.
        mapping: Another form of the text, or of each text of a list.
    """

    parse: Callable[[Any], Any]
    example: str | tuple[str, ...]
    mapping: MappingForm | None = None


@dataclass(frozen=True)
class Location:
    """A text that is a path or an address: ``Annotated[str, Location()]``; a run file may contain relative paths."""


@dataclass(frozen=True)
class Names:
    """A list of names, which may also be written as one text with commas: ``Annotated[tuple[str, ...], Names()]``."""

    def split(self, texts: list[str]) -> list[str]:
        """Return the names.

        >>> Names().split(["a,b", "c"])
        ['a', 'b', 'c']
        """
        parts = [part.strip() for text in texts for part in text.split(",")]
        return [part for part in parts if part] if any("," in text for text in texts) else texts


@dataclass(frozen=True)
class SameAs:
    """Words with the effect of another one, which replaces them: results of one are reused for the others."""

    word: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Parameter:
    """One declared parameter.

    Attributes:
        type: ``bool``, ``int``, ``float``, ``str`` or ``list[str]``.
        default: The default value; None if the parameter is required or optional.
        choices: The allowed words of a ``Literal``; empty if any value of the type is allowed.
        is_tuple: True if a list is passed to the function as a tuple (declared as ``tuple[str, ...]``).
        names: Splits texts of several names; None if a text may contain a comma.
        same_as: Choices that `check` replaces by another one.
    """

    name: str
    type: Any
    default: Any
    required: bool = False
    optional: bool = False
    choices: tuple[str, ...] = ()
    between: Between | None = None
    reads: Reads | None = None
    description: str = ""
    is_tuple: bool = False
    names: Names | None = None
    is_location: bool = False
    same_as: SameAs | None = None

    def check(self, value: Any, owner: str) -> Any:
        """Return the value in its declared type.

        Raises:
            ComponentError: If it has another type, is not one of the choices, lies outside the range, or the parser
                refuses it.
        """
        if value is None and self.optional:
            return None
        if self.is_tuple and isinstance(value, tuple):
            value = list(value)
        if self.type is float and type(value) is int:
            value = float(value) if abs(value) <= sys.float_info.max else math.inf
        if type(value) is int and not -(2**63) <= value < 2**63:
            received = f"{owner}: {self.name}: a number of {value.bit_length()} bits"
            raise ComponentError(received, f"{self.expected}, in 64 bits", "write a smaller number")
        right = all(isinstance(item, str) for item in value) if isinstance(value, list) else True
        if type(value) is not (get_origin(self.type) or self.type) or not right:
            raise self._refusal(value, owner)
        if self.names:
            value = self.names.split(value)
        if (self.choices and value not in self.choices) or (self.between and value not in self.between):
            raise self._refusal(value, owner)
        try:
            if self.reads:
                self.reads.parse(value)
        except ComponentError as error:
            raise ComponentError(f"{owner}: {self.name}: {error.received}", error.expected, error.fix) from error
        except (ValueError, OverflowError) as error:  # such as Python's limit of digits
            received = f"{owner}: {self.name}={_shortened(value)}: {first_line(error)}"
            example = self.reads.example if self.reads else ""
            raise ComponentError(received, f"a value such as {example!r}", "change the value") from error
        return self.same_as.word if self.same_as and value in self.same_as.words else value

    def parse(self, text: str, owner: str) -> Any:
        """Parse a value from text, as a command line or a string property of an engine contains it.

        A list is JSON (``["1", "32"]``, ``[1, 32]``); another text is a list of one text, which may contain several
        names: ``1``, ``1,32``.
        """
        if self.type is str:
            return self.check(text, owner)
        try:
            value = json.loads(text.lower() if self.type is bool else text)
        except (ValueError, RecursionError):  # not JSON, or nested 1,000 levels deep
            value = [text] if self.type == list[str] else text
        if self.type == list[str]:
            if isinstance(value, list):
                value = [json.dumps(item) if type(item) in (int, float) else item for item in value]
            elif type(value) in (int, float, bool):  # null remains, and is no list
                value = [text]
        return self.check(value, owner)

    def schema(self) -> JsonObject:
        """Return the JSON Schema of this parameter."""
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
        """Return some allowed value, to check a DAG whose real value is known only at run time."""
        if self.choices:
            return self.choices[0]
        if self.reads:
            return self.reads.example if self.type is str else list(self.reads.example)
        return self.type(self.between.low or self.between.high or 0) if self.between else self.type()

    @property
    def expected(self) -> str:
        """Describe the allowed values in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        word = "list of strings" if self.type == list[str] else self.type.__name__
        return f"{word} {self.between}" if self.between else word

    def _refusal(self, value: Any, owner: str) -> ComponentError:
        default = f"'{json.dumps(self.default)}'" if self.type == list[str] else repr(self.default)
        hint = f"pass {self.name}={default} (the default)" if self.default is not None else "change the value"
        if self.choices and isinstance(value, str):
            hint = nearest(value, self.choices)
        return ComponentError(f"{owner}: {self.name}={_shortened(value)}", self.expected, hint)


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 500 else f"{text[:500]}… ({len(text)} characters)"


def parameters_schema(title: str, description: str, parameters: Mapping[str, Parameter]) -> JsonObject:
    """Return the JSON Schema of an object with these parameters."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "description": description,
        "type": "object",
        "properties": {name: parameter.schema() for name, parameter in parameters.items()},
        "required": [name for name, parameter in parameters.items() if parameter.required],
        "additionalProperties": False,
    }


def read_group(group: type) -> dict[str, Parameter]:
    """Read the parameters that a frozen dataclass declares, by field name, in the order of its fields.

    Annotations and defaults are those of the fields; descriptions come from ``Attributes:`` in its docstring, or in
    that of the base class which declares the field.
    """
    return {argument.name: argument.read() for argument in group_arguments(group)}


@dataclass(frozen=True)
class DeclaredArgument:
    """A parameter as it is written, as an argument of a function or a field of a group; `MISSING` is no default."""

    name: str
    hint: Any
    default: Any
    description: str

    def read(self) -> Parameter:
        """Build the Parameter.

        >>> DeclaredArgument("sparsity", Annotated[float, Between(0, 1)], 0.5, "").read().expected
        'float from 0 to 1'

        Raises:
            TypeError: If the annotation is not one of the plain types; addressed to the component's author.
        """
        hint = self.hint
        optional = get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)
        if optional:
            hint = next(part for part in get_args(hint) if part is not type(None))
        annotations: dict[type, Any] = {}
        if get_origin(hint) is Annotated:
            hint, *others = get_args(hint)
            annotations = {type(annotation): annotation for annotation in others}
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        is_tuple = hint == tuple[str, ...]
        hint = str if choices else list[str] if is_tuple else hint
        if hint not in PLAIN:
            accepted = "bool, int, float, str, tuple[str, ...], Literal"
            raise TypeError(f"parameter {self.name}: {hint} is not one of {accepted}")
        default = list(self.default) if isinstance(self.default, tuple) else self.default
        return Parameter(
            *(self.name, hint, None if default is MISSING else default, default is MISSING, optional, choices),
            between=annotations.get(Between),
            reads=annotations.get(Reads),
            description=self.description,
            is_tuple=is_tuple,
            names=annotations.get(Names),
            is_location=Location in annotations,
            same_as=annotations.get(SameAs),
        )


def group_arguments(group: type) -> Iterator[DeclaredArgument]:
    """Yield the fields of a frozen dataclass as declared arguments."""
    hints = get_type_hints(group, include_extras=True)
    descriptions: dict[str, str] = {}
    for base in reversed(group.__mro__):
        descriptions |= read_descriptions(base.__doc__ or "")
    for field in fields(group):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        yield DeclaredArgument(field.name, hints[field.name], default, descriptions.get(field.name, ""))


def read_descriptions(docstring: str) -> dict[str, str]:
    """Return the text after each name in ``Args:`` or ``Attributes:`` of a Google-style docstring."""
    parsed = docstring_parser.parse(docstring, style=docstring_parser.DocstringStyle.GOOGLE)
    return {item.arg_name: " ".join((item.description or "").split()) for item in parsed.params}


def inherit(parameter: Parameter, reached: Parameter) -> Parameter:
    """Narrow a pipeline's parameter to what a step's parameter of the same type allows.

    Choices and ranges of both apply. The parser and the description are the step's if the pipeline declares none.
    """
    if parameter.type != reached.type:  # an int may be passed to a float; the step checks its value
        return parameter
    return replace(
        parameter,
        choices=_common(parameter.choices, reached.choices),
        between=_overlap(parameter.between, reached.between),
        reads=parameter.reads or reached.reads,
        names=parameter.names or reached.names,
        is_location=parameter.is_location or reached.is_location,
        description=parameter.description or reached.description,
    )


def _common(choices: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in choices if word in others) if choices and others else choices or others


def _overlap(one: Between | None, other: Between | None) -> Between | None:
    if not (one and other):
        return one or other
    lows = [limit for limit in (one.low, other.low) if limit is not None]
    highs = [limit for limit in (one.high, other.high) if limit is not None]
    return Between(max(lows, default=None), min(highs, default=None))
