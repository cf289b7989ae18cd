"""The declaration: a typed Python function is a component, and its signature is the only place that says so.

    @component(image="tf")
    def prune(model: Input[KerasModel], pruned: Output[KerasModel], *, sparsity: float = 0.5) -> None: ...

Everything else (the TFX and KFP faces, the command line, the JSON schema, ``component.yaml``) is read from it. A
component stays callable: ``prune(model="a/", pruned="b/", sparsity=0.8)`` with paths runs it, no engine needed.
"""

import importlib
import inspect
import pkgutil
import typing
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

import docstring_parser

from tfopt.artifacts import Artifact
from tfopt.errors import ComponentError, nearest
from tfopt.parameters import Between, Parameter, Reads, read_parameter

__all__ = ["Between", "Component", "Input", "Output", "Port", "Reads", "SameOutput", "component", "components", "find"]

Kind = type[Artifact]
T = TypeVar("T")
Input = Annotated[T, "input"]
Output = Annotated[T, "output"]
Reused = Literal["everywhere", "here", "never"]
SameOutput = Annotated[T, "output", "same"]  # of the first input's type, where a DAG gives it a narrower one


@dataclass(frozen=True)
class Port:
    """One artifact input or output: its type, whether it is a list, optional, or of the first input's type."""

    name: str
    type: Kind
    many: bool
    optional: bool
    description: str
    same: bool = False

    def kind(self, given: Kind) -> Kind:
        """The type of an output when this is the type of the first input."""
        return given if self.same and issubclass(given, self.type) else self.type


@dataclass(frozen=True)
class Needs:
    """What a step is given where steps share machines: cores, memory as Kubernetes writes it, GPUs."""

    cpu: float
    memory: str
    gpu: int


def component(
    *, image: str, reused: Reused = "everywhere", beam: bool = False, cpu: float = 1, memory: str = "4Gi", gpu: int = 0
) -> Callable[[Callable[..., None]], "Component"]:
    """Declare a function as a component.

    Args:
        image: The kind of container image it needs (a folder of ``deploy/images``).
        reused: Where an earlier run's result is taken for this one's: ``here`` is not on Kubeflow, whose machines
            differ (a measurement, a decision), ``never`` what changes something that is no output of it (a push).
        beam: True where the work is a Beam pipeline, which then gets the runner's arguments.
        cpu: Cores that Kubeflow gives a step, no more and no less; ``--kfp-option`` changes it, memory and gpu.
        memory: As Kubernetes writes it.
        gpu: How many.
    """
    return lambda function: Component(function, image, reused, beam, Needs(cpu, memory, gpu))


class Component:
    """A declared function, callable with paths and parameter values."""

    def __init__(self, function: Callable[..., None], image: str, reused: Reused, beam: bool, needs: Needs) -> None:
        """Keep the function; the signature is read when first asked for."""
        self.function, self.image, self.reused, self.beam, self.needs = function, image, reused, beam, needs
        self.name = self.__name__ = function.__name__
        self.__doc__, self.__module__ = function.__doc__, function.__module__
        self.__wrapped__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Artifact]:
        """Run here and now. Inputs and outputs are paths (or artifacts); returns the outputs.

        Raises:
            ComponentError: When a value, an input or a target is not what the signature asks for, or the work fails.
        """
        from tfopt.execution import execute

        return execute(self, dict(self.signature.bind_partial(*args).arguments) | kwargs)

    def __repr__(self) -> str:
        """Name it as a reader would import it."""
        return f"<component {self.path}>"

    @property
    def path(self) -> str:
        """Where any process finds this component again: ``module:name``."""
        return f"{self.__module__}:{self.name}"

    @cached_property
    def signature(self) -> inspect.Signature:
        """The function's own signature."""
        return inspect.signature(self.function)

    @cached_property
    def inputs(self) -> dict[str, Port]:
        """The artifact inputs by name, in the signature's order."""
        return self._ports("input")

    @cached_property
    def outputs(self) -> dict[str, Port]:
        """The artifact outputs by name, in the signature's order."""
        return self._ports("output")

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters by name, in the signature's order."""
        ports = {**self.inputs, **self.outputs}
        return {
            name: read_parameter(
                name,
                self._hints[name],
                None if given.default is given.empty else given.default,
                given.default is given.empty,
                self.descriptions.get(name, ""),
            )
            for name, given in self.signature.parameters.items()
            if name not in ports
        }

    @cached_property
    def summary(self) -> str:
        """The docstring's first sentence."""
        return docstring_parser.parse(self.__doc__ or "").short_description or ""

    @cached_property
    def explanation(self) -> str:
        """The docstring between its first sentence and ``Args:``."""
        return docstring_parser.parse(self.__doc__ or "").long_description or ""

    @cached_property
    def descriptions(self) -> dict[str, str]:
        """What the docstring's ``Args:`` says of each name."""
        parsed = docstring_parser.parse(self.__doc__ or "", style=docstring_parser.DocstringStyle.GOOGLE)
        return {item.arg_name: " ".join((item.description or "").split()) for item in parsed.params}

    def check(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return every parameter with its checked value or default, as a DAG is built with.

        Raises:
            ComponentError: On an unknown name, a missing one, or a value the signature does not allow.
        """
        for name in values:
            if name not in self.parameters:
                fix = nearest(name, [*self.inputs, *self.outputs, *self.parameters])
                raise ComponentError(f"{self.name}: {name}", "a name of its signature", fix)
        for parameter in self.parameters.values():
            if parameter.required and parameter.name not in values:
                raise ComponentError(
                    f"{self.name}: no {parameter.name}", parameter.expected, f"pass {parameter.name}=…"
                )
        return {
            name: parameter.check(values[name], self.name) if name in values else parameter.default
            for name, parameter in self.parameters.items()
        }

    def schema(self) -> dict[str, Any]:
        """The whole declaration in JSON Schema, artifact types and engine facts included."""
        ports = {
            side: {
                port.name: {
                    "type": port.type.__name__,
                    "list": port.many,
                    "optional": port.optional,
                    "description": port.description,
                }
                for port in group.values()
            }
            for side, group in (("inputs", self.inputs), ("outputs", self.outputs))
        }
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": self.name,
            "description": self.summary,
            "type": "object",
            "properties": {name: parameter.schema() for name, parameter in self.parameters.items()},
            "required": [parameter.name for parameter in self.parameters.values() if parameter.required],
            "additionalProperties": False,
            **ports,
            "image": self.image,
            "reused": self.reused,
            "beam": self.beam,
            "needs": asdict(self.needs),
        }

    @cached_property
    def _hints(self) -> dict[str, Any]:
        # Resolved here, once: string annotations would break TFX's and KFP's own readers.
        return typing.get_type_hints(self.function, include_extras=True)

    def _ports(self, role: str) -> dict[str, Port]:
        ports = {}
        for name, given in self.signature.parameters.items():
            marked = next(
                (part for part in (self._hints[name], *typing.get_args(self._hints[name])) if _is(part, role)), None
            )
            if marked is None:
                continue
            kind = typing.get_args(marked)[0]
            many = typing.get_origin(kind) is list
            kind = typing.get_args(kind)[0] if many else kind
            same = "same" in marked.__metadata__
            ports[name] = Port(name, kind, many, given.default is None, self.descriptions.get(name, ""), same)
        return ports


def components() -> dict[str, Component]:
    """Every component tfopt ships, found by listing the folder."""
    return {name: find(name) for name in _names()}


def find(path: str) -> Component:
    """Return the component at ``module:name``, or the shipped one of that bare name.

    Raises:
        ComponentError: When there is none, with the nearest names.
    """
    if ":" not in path and path not in _names():
        raise ComponentError(f"component {path!r}", "the name of a component", nearest(path, _names()))
    module, _, name = path.partition(":") if ":" in path else (f"tfopt.components.{path}.component", "", path)
    found = getattr(importlib.import_module(module), name, None)
    if not isinstance(found, Component):
        raise ComponentError(path, "a function decorated with @component", "check the module and the name")
    return found


def _names() -> list[str]:
    import tfopt.components

    return sorted(module.name for module in pkgutil.iter_modules(tfopt.components.__path__) if module.ispkg)


def _is(hint: Any, role: str) -> bool:
    return typing.get_origin(hint) is Annotated and typing.get_args(hint)[1:2] == (role,)
