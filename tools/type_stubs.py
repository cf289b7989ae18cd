"""Generate type stubs of the components, from their declarations, for editors and type checkers.

    python tools/type_stubs.py [FOLDER]

Files are written below FOLDER, by default this repository, where git ignores them. `setup.py` runs this before it
builds a wheel or an editable install, `make check` before mypy. A stub declares the calls ``export_tflite(…)``, and
``steps.export_tflite(…)`` in pipelines of tfopt, TFX and Kubeflow, with the names, types, words and defaults of the
declaration.
"""

import keyword
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # not another tfopt that is installed

from tfopt.artifacts import Examples, Files, Model  # noqa: E402
from tfopt.component import Component, Port, components  # noqa: E402
from tfopt.declaration.parameters import Parameter  # noqa: E402

HEADER = '"""Generated from the declarations by `tools/type_stubs.py`: do not edit."""\n'
COMPONENTS, STEPS, NODES = (
    "tfopt/components/__init__.pyi",  # by the link: the source distribution has no other folder
    "tfopt/dag/component_steps.pyi",
    "tfopt/dag/component_nodes.pyi",
)


def write(root: Path) -> None:
    """Write each stub whose text changed."""
    for path, text in stubs(components()).items():
        file = root / path
        if not file.is_file() or file.read_text() != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


def stubs(components: dict[str, Component]) -> dict[str, str]:
    """Return the text of each stub by its path in this repository."""
    return {
        COMPONENTS: _component_stub(components),
        STEPS: _steps_stub(components),
        NODES: _nodes_stub(components),
    }


def _component_stub(components: dict[str, Component]) -> str:
    """Return the stub of ``tfopt.components``: one callable object for each component."""
    blocks = [
        HEADER,
        "from collections.abc import Sequence",
        "from typing import Literal\n",
        "from tfopt.artifacts import Artifact",
        "from tfopt.component import Component",
        "from tfopt.execution.object_inputs import Data, Location, ModelObject\n",
    ]
    for name, component in components.items():
        kind = f"_{name.title().replace('_', '')}"
        declared = component.inputs | component.outputs
        ports = [declared[port] for port in component.signature.parameters if port in declared]
        ports = [_argument(port.name, _location(port, port.name in component.inputs), port.optional) for port in ports]
        blocks += [f"class {kind}(Component):"]
        blocks += _method("__call__", ports + ["*"] * bool(component.parameters), component, "dict[str, Artifact]")
        blocks += [f"{name}: {kind}\n"]
    return "\n".join(blocks)


def _steps_stub(components: dict[str, Component]) -> str:
    """Return the stub of the methods of `tfopt.dag.tracing.Steps`."""
    artifacts = sorted({port.type.__name__ for component in components.values() for port in component.inputs.values()})
    blocks = [
        HEADER,
        "from collections.abc import Collection, Sequence",
        "from typing import Literal\n",
        f"from tfopt.artifacts import {', '.join(artifacts)}",
        "from tfopt.dag.dag import Step, StepOutput\n",
        "class ComponentSteps:",
    ]
    for name, component in components.items():
        ports = [_argument(port.name, _wire(port), port.optional) for port in component.inputs.values()]
        fixed = ["*", "id: str | None = None", "requires: Collection[str] = ()"]
        blocks += _method(name, [*fixed, *ports], component, "Step")
    return "\n".join(blocks)


def _nodes_stub(components: dict[str, Component]) -> str:
    """Return the stub of the methods of `tfopt.tfx.steps` and `tfopt.kfp.steps`, whose channels have no types."""
    blocks = [HEADER, "from typing import Any, Literal\n"]
    blocks += ["class ComponentNodes:"]
    for name, component in components.items():
        ports = [_argument(port.name, "Any", port.optional) for port in component.inputs.values()]
        starred = ["*"] if ports or component.parameters else []
        blocks += _method(name, [*starred, *ports], component, "Any")
    return "\n".join(blocks)


def _method(name: str, arguments: list[str], component: Component, returned: str) -> Iterator[str]:
    """Yield the lines of a method that takes the arguments and the parameters of a component."""
    declared = [_argument(one.name, _type(one), default=_default(one)) for one in component.parameters.values()]
    yield f"    def {name}("
    yield from (f"        {argument}," for argument in ["self", *arguments, *declared])
    yield f"    ) -> {returned}:"
    yield from _docstring(component)


def _docstring(component: Component) -> Iterator[str]:
    """Yield the lines of the docstring, which editors show."""
    described = {**component.inputs, **component.outputs, **component.parameters}
    yield f'        """{_literal(component.summary)}'
    yield ""
    yield "        Args:"
    yield from (f"            {name}: {_literal(one.description)}" for name, one in described.items())
    yield '        """'
    yield ""


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', "'''")


def _argument(name: str, kind: str, optional: bool = False, default: str | None = None) -> str:
    assert not keyword.iskeyword(name)
    if optional:
        return f"{name}: {kind} | None = None"
    return f"{name}: {kind}" if default is None else f"{name}: {kind} = {default}"


def _location(port: Port, is_input: bool) -> str:
    """Return the annotation of an input or output in a call: paths and, for inputs, the objects that are saved."""
    objects = {Model: " | ModelObject", Examples: " | Data", Files: " | Data"} if is_input else {}
    kind = "Location" + next((text for base, text in objects.items() if issubclass(port.type, base)), "")
    return f"{kind} | Sequence[{kind}]" if port.many else kind


def _wire(port: Port) -> str:
    kind = f"{port.type.__name__} | StepOutput"
    return f"Sequence[{kind}]" if port.many else kind


def _type(parameter: Parameter) -> str:
    """Return the annotation of a parameter."""
    if parameter.choices:
        kind = f"Literal[{', '.join(map(repr, parameter.choices))}]"
    elif parameter.type == list[str]:
        kind = "list[str] | tuple[str, ...]" if parameter.is_tuple else "list[str]"
    else:
        kind = parameter.type.__name__
    return f"{kind} | None" if parameter.optional else kind


def _default(parameter: Parameter) -> str | None:
    return None if parameter.required else repr(parameter.default)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
