"""The command line of a component, read from its declaration, and of a DAG."""

import argparse
from collections.abc import Sequence
from typing import Any

from tfopt.component import Component, Port
from tfopt.dag.dag import Dag
from tfopt.declaration.parameters import Parameter
from tfopt.errors import ComponentError


def parser_for(component: Component, prog: str) -> argparse.ArgumentParser:
    """Build the parser of ``tfopt NAME``: an option for every input, output and parameter."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description=_escape(f"{component.summary}\n\n{component.explanation}".strip()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    inputs, outputs = parser.add_argument_group("inputs"), parser.add_argument_group("outputs")
    for group, ports in ((inputs, component.inputs), (outputs, component.outputs)):
        for port in ports.values():
            _add_port(group, port)
    group = parser.add_argument_group("parameters")
    for parameter in component.parameters.values():
        _add_parameter(group, parameter, component.name)
    if component.beam:
        parser.add_argument(
            "--beam-pipeline-arg",
            action="append",
            default=[],
            metavar="ARG",
            help="an argument for the Beam pipeline, such as --beam-pipeline-arg=--runner=DirectRunner",
        )
    return parser


def option(name: str) -> str:
    """How a name is spelled on the command line.

    >>> option("select_tf_ops")
    '--select-tf-ops'
    """
    return f"--{name.replace('_', '-')}"


def dashed(words: Sequence[str]) -> list[str]:
    """Take ``--select_tf_ops`` for ``--select-tf-ops``; values are left alone.

    >>> dashed(["--select_tf_ops", "--label=my_label", "my_file"])
    ['--select-tf-ops', '--label=my_label', 'my_file']
    """
    split = [word.partition("=") if word.startswith("--") else ("", "", word) for word in words]
    return [name.replace("_", "-") + equals + value for name, equals, value in split]


def assigned(dag: Dag, given: Sequence[str]) -> dict[str, Any]:
    """Read what ``--set NAME=VALUE`` says: text for a source, a checked value for a parameter.

    Raises:
        ComponentError: When there is no ``=``, a name comes twice, or a parameter does not take the value.
    """
    values: dict[str, Any] = {}
    for pair in given:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ComponentError(f"--set {pair}", "NAME=VALUE", f"write --set {pair}=…")
        if name in values:
            listed = '; a list is one value: --set goals=\'["…", "…"]\'' if name in dag.parameters else ""
            raise ComponentError(f"--set {name} twice", "each name once", f"leave one of them out{listed}")
        parameter = dag.parameters.get(name)
        values[name] = parameter.parse(text, dag.name) if parameter else text
    return values


def _add_port(group: Any, port: Port) -> None:
    text = f"{port.description} [{port.type.__name__}: {port.type.contents}]"
    group.add_argument(
        option(port.name),
        dest=port.name,
        metavar="PATH",
        required=not port.optional,
        help=_escape(text),
        default=None,
        **({"nargs": "+"} if port.many else {}),
    )


def _add_parameter(group: Any, parameter: Parameter, owner: str) -> None:
    def parse(text: str) -> Any:
        try:
            return parameter.parse(text, owner)
        except ComponentError as error:
            raise argparse.ArgumentTypeError(f"\n{error}") from None

    default = "required" if parameter.required else f"default: {parameter.default}"
    kind: dict[str, Any] = {"type": parse, "metavar": "VALUE"}
    if parameter.type is bool:
        kind = {"action": argparse.BooleanOptionalAction}
    elif parameter.type == list[str]:
        kind = {"nargs": "*", "metavar": "TEXT"}
    elif parameter.choices:
        kind["metavar"] = f"{{{','.join(parameter.choices)}}}"
    group.add_argument(
        option(parameter.name),
        dest=parameter.name,
        required=parameter.required,
        default=argparse.SUPPRESS,
        help=_escape(f"{parameter.description} [{parameter.expected}; {default}]"),
        **kind,
    )


def _escape(text: str) -> str:
    return text.replace("%", "%%")
