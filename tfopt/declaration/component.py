"""Read the declaration of a component from the signature and docstring of its function."""

import inspect
import re
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, asdict, dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

import docstring_parser

from tfopt.artifacts import Artifact
from tfopt.declaration.parameters import DeclaredArgument, Parameter, parameters_schema, read_descriptions, read_group
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.value_types import JsonObject

Kind = type[Artifact]
T = TypeVar("T")
Input = Annotated[T, "input"]
Output = Annotated[T, "output"]
Cache = Literal["always", "local", "never"]
Purpose = Literal["data", "training", "fine_tuning", "graph", "conversion", "measurement", "selection", "serving"]
PURPOSES: dict[Purpose, str] = {
    "data": "prepare data",
    "training": "train",
    "fine_tuning": "make a model smaller by fine-tuning",
    "graph": "make a model faster in its format",
    "conversion": "convert a model to another format",
    "measurement": "measure",
    "selection": "search and select",
    "serving": "validate and push",
}
SameOutput = Annotated[T, "output", "same"]  # has the type of the first input, where a DAG wires a narrower one
Group = Annotated[T, "group"]  # a frozen dataclass of parameters


TOLERANCE = 1e-3  # of an output's range
SIGNATURE = Parameter(
    "signature",
    str,
    "serving_default",
    description="Name of the signature of the models to run or convert, in formats with signatures.",
)
TRUST_MODEL_CODE = Parameter(
    "trust_model_code",
    bool,
    False,
    description="Run what reaches outside of a model: Python code in a Keras file, such as that of a Lambda layer, or "
    "operators of a SavedModel that read or write files; off: refuse such models.",
)
ON_FAILURE = Parameter(
    "on_failure",
    str,
    "raise",
    choices=("raise", "row"),
    description="With ``row``, a model that cannot be made does not fail the step: the output records the reason, and "
    "evaluate, benchmark and select_model list it as a failed model, which is never selected.",
)
MODEL_PARAMETERS = {parameter.name: parameter for parameter in (SIGNATURE, TRUST_MODEL_CODE)}
Runner = Callable[["Component", Mapping[str, Any]], dict[str, Artifact]]


@dataclass(frozen=True)
class Port:
    """One artifact input or output, or a list of them (`many`); `same` stands for `SameOutput`."""

    name: str
    type: Kind
    many: bool
    optional: bool
    description: str
    same: bool = False

    def kind(self, first_input: Kind) -> Kind:
        """Return the type of this output if the first input has the given type."""
        return first_input if self.same and issubclass(first_input, self.type) else self.type

    def keys(self, present: Collection[str]) -> list[str]:
        """Return those inputs of an engine that are this one: NAME, or NAME_1, NAME_2, … in order if it is a list."""
        if not self.many:
            return [self.name] if self.name in present else []
        prefix = f"{self.name}_"
        numbers = [int(key.removeprefix(prefix)) for key in present if re.fullmatch(rf"{prefix}\d+", key)]
        return [f"{prefix}{number}" for number in sorted(numbers)]


@dataclass(frozen=True)
class Resources:
    """The machine resources of one step; the memory is a Kubernetes quantity, such as ``4Gi``."""

    cpu: float
    memory: str
    gpu: int


@dataclass(frozen=True)
class Effect:
    """The effect that a component leaves in the weights of a model, and a later step could undo.

    Attributes:
        name: ``zeros``, ``shared weights``, ``quantization``, or another name that components have in ``not_after``.
        only: Values of parameters that have the effect; by default all have it.
    """

    name: str
    only: Mapping[str, Collection[str]] = field(default_factory=dict)


@dataclass(kw_only=True, eq=False)
class Declaration:
    """The arguments of ``@component``, the same attributes of a component.

    Attributes:
        image: The container image it needs: a folder of ``deploy/images``.
        purpose: The group of ``tfopt list`` that shows it.
        cache: Where the result of an earlier run may be reused: ``always``; ``local``: not on Kubeflow, whose machines
            differ (a measurement, a decision); ``never``: the step changes something outside its outputs (a push).
        beam: True if the work is a Beam pipeline; the component then takes the arguments of a Beam runner.
        runs: Names of the components that it runs itself; a cached result is not reused after their code changed.
        tolerance: A model output is compared with the first input, if that is a model: names, dtypes and shapes of
            inputs and outputs must be the same, and outputs may differ by at most this fraction of their range. None:
            they may differ (after training, say), but be neither NaN nor constant. See `tfopt.execution.parity_check`.
        model_signature: Add the parameters of components that load models: ``signature``, the name of the signature
            that is run or converted, which the function finds as ``model.signature`` and `tfopt.runtimes.load` uses;
            and ``trust_model_code``, without which Keras files with code, and graphs that use files, are refused.
        on_failure: Add the parameter ``on_failure``, for components that make a model: with ``row``, one that cannot
            be made becomes a failed model, so that one candidate does not end a run (`tfopt.execution.failed_models`).
        effect: What it leaves in the weights of a model that a later step could undo, such as ``Effect("zeros")``.
        not_after: The effects of earlier steps that it would undo, each with the reason. A model with such a step in
            its lineage is refused, and so is a DAG. See `tfopt.declaration.step_order`.
        idempotent: True if a second run finds nothing more to do, so that it undoes no effect that followed the first.
        cpu: Number of cores that Kubeflow requests for a step; ``--kfp-option`` changes it, memory and gpu.
        memory: Requested memory as a Kubernetes quantity, such as ``4Gi``.
        gpu: Number of GPUs.
        concurrent: True if ``tfopt run --engine process`` may run it at the same time as other such steps: its work is
            done in child processes, and it measures no time.
    """

    image: str
    purpose: Purpose | None = None
    cache: Cache = "always"
    beam: bool = False
    runs: Collection[str] = ()
    tolerance: float | None = TOLERANCE
    model_signature: bool = False
    on_failure: bool = False
    effect: Effect | None = None
    not_after: Mapping[str, str] = field(default_factory=dict)
    idempotent: bool = False
    cpu: float = 1
    memory: str = "4Gi"
    gpu: int = 0
    concurrent: bool = False


@dataclass(eq=False, repr=False)
class Component(Declaration):
    """A declared function, callable with paths and parameter values. Its signature is read on first use.

    Attributes:
        function: The function that does the work.
        run: Executes the component on checked arguments; see `tfopt.execution.execute`.
    """

    function: Callable[..., None]
    run: Runner

    def __post_init__(self) -> None:
        """Take name and documentation from the function."""
        self.name = self.__name__ = self.function.__name__
        self.__doc__, self.__module__ = self.function.__doc__, self.function.__module__
        self.__wrapped__ = self.function
        self.added_parameters = {ON_FAILURE.name: ON_FAILURE} if self.on_failure else {}
        self.added_parameters |= MODEL_PARAMETERS if self.model_signature else {}

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Artifact]:
        """Run the component in this process on paths or artifacts, and return its outputs.

        Raises:
            ComponentError: If a value, an input or an output path does not match the signature, or the work fails.
        """
        return self.run(self, dict(self.signature.bind_partial(*args).arguments) | kwargs)

    def __repr__(self) -> str:
        """Return the import path."""
        return f"<component {self.path}>"

    @property
    def path(self) -> str:
        """The import path, ``module:name``, by which any process can load this component."""
        return f"{self.__module__}:{self.name}"

    @property
    def resources(self) -> Resources:
        """The machine that Kubeflow requests for a step."""
        return Resources(self.cpu, self.memory, self.gpu)

    @cached_property
    def signature(self) -> inspect.Signature:
        """The signature of the function."""
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
        parameters: dict[str, Parameter] = {}
        for name, argument in self.signature.parameters.items():
            if name in self.groups:
                added = read_group(self.groups[name])
            elif name not in ports:
                default = MISSING if argument.default is argument.empty else argument.default
                declared = DeclaredArgument(name, self._hints[name], default, self.descriptions.get(name, ""))
                added = {name: declared.read()}
            else:
                continue
            if twice := added.keys() & (parameters.keys() | ports.keys()):
                raise TypeError(f"{self.name}: {', '.join(sorted(twice))} declared twice")
            parameters |= added
        return parameters | self.added_parameters

    @cached_property
    def groups(self) -> dict[str, type]:
        """The parameter groups: the dataclass of each ``Group[...]`` argument, by argument name."""
        return {name: hint.__origin__ for name, hint in self._hints.items() if _is(hint, "group")}

    def arguments(self, values: Mapping[str, Any]) -> dict[str, object]:
        """Return the arguments of the function from checked parameter values: groups assembled, tuples as declared."""
        converted = {
            name: tuple(value) if self.parameters[name].is_tuple and value is not None else value
            for name, value in values.items()
            if name not in self.added_parameters
        }
        for argument, group in self.groups.items():
            converted[argument] = group(**{field: converted.pop(field) for field in read_group(group)})
        return converted

    def effect_with(self, values: Mapping[str, Any]) -> str | None:
        """Return the name of its effect with parameter values; None if it has none."""
        effect = self.effect
        if effect is None:
            return None
        chosen = ((values.get(name, self.parameters[name].default), allowed) for name, allowed in effect.only.items())
        return effect.name if all(value in allowed for value, allowed in chosen) else None

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
        """The text of the docstring's ``Args:`` by name."""
        return read_descriptions(self.__doc__ or "")

    def check(self, values: Mapping[str, Any]) -> dict[str, object]:
        """Return the checked value, or the default, of every parameter.

        Raises:
            ComponentError: If a name is unknown, a required value is missing, or the signature does not allow a value.
        """
        for name in values:
            if name not in self.parameters:
                fix = nearest(name, [*self.inputs, *self.outputs, *self.parameters])
                raise ComponentError(f"{self.name}: {name}", "a name of its signature", fix)
        for parameter in self.parameters.values():
            if parameter.required and parameter.name not in values:
                received = f"{self.name}: no {parameter.name}"
                raise ComponentError(received, parameter.expected, f"pass {parameter.name}=…")
        return {
            name: parameter.check(values[name], self.name) if name in values else parameter.default
            for name, parameter in self.parameters.items()
        }

    def schema(self) -> JsonObject:
        """Return the declaration as JSON Schema, with artifact types, image, cache and resources."""
        ports: dict[str, dict[str, JsonObject]] = {"inputs": {}, "outputs": {}}
        for side, group in (("inputs", self.inputs), ("outputs", self.outputs)):
            for name, port in group.items():
                ports[side][name] = {"type": port.type.__name__, "list": port.many, "optional": port.optional}
                ports[side][name]["description"] = port.description
        return {
            **parameters_schema(self.name, self.summary, self.parameters),
            **ports,
            "purpose": self.purpose,
            "image": self.image,
            "cache": self.cache,
            "beam": self.beam,
            "resources": asdict(self.resources),
        }

    @cached_property
    def _hints(self) -> dict[str, Any]:
        # Resolved here, once: string annotations would break TFX's and KFP's own readers.
        return typing.get_type_hints(self.function, include_extras=True)

    def _ports(self, role: str) -> dict[str, Port]:
        ports = {}
        for name, argument in self.signature.parameters.items():
            parts = (self._hints[name], *typing.get_args(self._hints[name]))
            for marked in (part for part in parts if _is(part, role)):
                kind = typing.get_args(marked)[0]
                many = typing.get_origin(kind) is list
                kind = typing.get_args(kind)[0] if many else kind
                same = "same" in marked.__metadata__
                ports[name] = Port(name, kind, many, argument.default is None, self.descriptions.get(name, ""), same)
        return ports


def _is(hint: Any, role: str) -> bool:
    return typing.get_origin(hint) is Annotated and typing.get_args(hint)[1:2] == (role,)
