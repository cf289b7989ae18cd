"""Command-line options of a component, built from its declaration, and values for the inputs of a pipeline."""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from tfopt.cli.terminal.detection import print_error
from tfopt.cli.terminal.json_log import is_json
from tfopt.component import Component, Port
from tfopt.dag.dag import Dag
from tfopt.declaration.parameters import Parameter
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.formatting import indented

Subparsers: TypeAlias = "argparse._SubParsersAction[CommandParser]"


class CommandParser(argparse.ArgumentParser):
    """The parser of ``tfopt`` or of one subcommand; it reports an unknown option first, with the nearest one.

    Attributes:
        hint: Returns how to pass something that is no option, or None.
    """

    hint: Callable[[str], str | None] = staticmethod(lambda option: None)

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse the arguments, and exit with code 2 if there are unknown ones."""
        words = list(sys.argv[1:] if args is None else args)
        if option := self._unknown_option(words):
            error = ComponentError(option, f"an option of {self.prog}", self._nearest_option(option))
            self.exit(2, f"{self.prog}: error\n{error_text(error)}\n")
        arguments, unknown = super().parse_known_args(words, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return arguments, unknown

    def _unknown_option(self, words: Sequence[str]) -> str | None:
        """Return the first unknown long option; those of a subcommand are for the parser of the subcommand."""
        for word in words:
            name = word.partition("=")[0]
            if word == "--" or (self._subparsers and not word.startswith("-")):
                return None
            if name.startswith("--") and name not in self._option_string_actions and " " not in name:
                is_prefix = any(option.startswith(name) for option in self._option_string_actions)
                if not (self.allow_abbrev and is_prefix):
                    return name
        return None

    def _nearest_option(self, name: str) -> str:
        if hint := self.hint(name):
            return hint
        options = [option for option in self._option_string_actions if option.startswith("--")]
        hint = nearest(name, options)
        return f"{hint}; {self.prog} --help describes them" if hint.startswith("known") else hint

    def error(self, message: str) -> NoReturn:
        """Print the usage, except in JSON lines, and an error, and exit with code 2."""
        if is_json():
            self.exit(2, f"{self.prog}: error: {message}")
        super().error(indented(message))

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Print an error, and end the process."""
        if message:
            print_error(message.removesuffix("\n"))
        super().exit(status)


def component_parser(component: Component, prog: str) -> argparse.ArgumentParser:
    """Return a parser for a component only."""
    parser = argparse.ArgumentParser(prog=prog)
    add_component_options(parser, component)
    return parser


def add_component_options(parser: argparse.ArgumentParser, component: Component) -> None:
    """Add a component's documentation, and an option for each of its inputs, outputs and parameters."""
    parser.description = f"{component.summary}\n\n{component.explanation}".strip()
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.allow_abbrev = False
    inputs, outputs = parser.add_argument_group("inputs"), parser.add_argument_group("outputs")
    for group, ports in ((inputs, component.inputs), (outputs, component.outputs)):
        for port in ports.values():
            _add_port(group, port)
    group = parser.add_argument_group("parameters")
    for parameter in component.parameters.values():
        _add_parameter(group, parameter, component.name)
    if component.beam:
        text = "an argument for the Beam pipeline, such as --beam-pipeline-arg=--runner=DirectRunner"
        add_list_option(parser, "--beam-pipeline-arg", "ARG", text)


def error_text(error: ComponentError) -> str:
    """Return the three parts of an error; names in them neither control the terminal nor look like another part."""
    return str(ComponentError(indented(error.received), indented(error.expected), indented(error.fix)))


def add_command(
    subparsers: Subparsers,
    name: str,
    run_command: Callable[[argparse.Namespace], int],
    summary: str,
    description: str = "",
    **settings: Any,
) -> CommandParser:
    """Add a command, which is described by its summary as a sentence unless it has a description."""
    sentence = f"{summary[0].upper()}{summary[1:]}."
    parser = subparsers.add_parser(name, help=summary, description=description or sentence, **settings)
    parser.set_defaults(run_command=run_command)
    return parser


def add_list_option(parser: argparse.ArgumentParser, option: str, metavar: str, help: str, **settings: Any) -> None:
    """Add an option that may occur several times; its values are a list."""
    parser.add_argument(option, action="append", default=[], metavar=metavar, help=help, **settings)


def add_json_option(parser: argparse.ArgumentParser, help: str = "print the result as JSON") -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help=help)


def add_cost_options(parser: argparse.ArgumentParser, code: int) -> None:
    """Add ``--price``, and ``--skip-unprofitable`` with the exit code of a skipped run."""
    text = (
        "price of an hour of the machine of the run, on Kubeflow of a node: tfopt run, or submit --wait, ends with "
        "what the run cost and, with a rate of requests, what its push saves in a month (default of tfopt run: the "
        "price of a node that benchmark gets, if any)"
    )
    parser.add_argument("--price", type=float, help=text)
    text = (
        f"run nothing, and end with exit code {code}, if the expected saving of this run in a month is below its "
        "expected cost. DRIFT is the result of check_drift about the served version, which must have decided nothing: "
        "a run for the quality of the model is not skipped. Needs a price and a rate (docs/operate.md)"
    )
    parser.add_argument("--skip-unprofitable", type=Path, metavar="DRIFT", help=text)


def check_positive(option: str, value: float | None) -> None:
    """Raise ComponentError if the value of an option is not a positive number."""
    if value is not None and not 0 < value < float("inf"):
        raise ComponentError(f"{option} {value:g}", "a number above 0", f"write for example {option} 30")


def escape(text: str) -> str:
    """Return a help text in which argparse finds nothing to replace."""
    return text.replace("%", "%%")


def option_name(name: str) -> str:
    """Return the command-line option of a parameter, input or output.

    >>> option_name("select_tf_ops")
    '--select-tf-ops'
    """
    return f"--{name.replace('_', '-')}"


def normalize_options(words: Sequence[str]) -> list[str]:
    """Replace underscores by hyphens in the names of options, not in values.

    >>> normalize_options(["--select_tf_ops", "--label=my_label", "my_file"])
    ['--select-tf-ops', '--label=my_label', 'my_file']
    """
    split = [word.partition("=") if word.startswith("--") else ("", "", word) for word in words]
    return [name.replace("_", "-") + equals + value for name, equals, value in split]


def parse_assignments(dag: Dag, assignments: Sequence[str]) -> dict[str, object]:
    """Parse the values of ``--set NAME=VALUE``: text for a source, a checked value for a parameter.

    Raises:
        ComponentError: If there is no ``=``, a name occurs twice, or a parameter does not allow the value.
    """
    values: dict[str, object] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise ComponentError(f"--set {assignment}", "NAME=VALUE", f"write --set {assignment}=…")
        if name in values:
            list_hint = '; a list is one value: --set goals=\'["…", "…"]\'' if name in dag.parameters else ""
            raise ComponentError(f"--set {name} twice", "each name once", f"leave one of them out{list_hint}")
        parameter = dag.parameters.get(name)
        values[name] = parameter.parse(text, dag.name) if parameter else text
    return values


def _add_port(group: Any, port: Port) -> None:
    text = escape(f"{port.description} [{port.type.__name__}: {port.type.contents}]")
    settings = {"nargs": "+"} if port.many else {}
    group.add_argument(option_name(port.name), metavar="PATH", required=not port.optional, help=text, **settings)


def parameter_help(parameter: Parameter) -> str:
    """Return the description of a parameter, with what it allows and its default."""
    default = "required" if parameter.required else f"default: {parameter.default}"
    return escape(f"{parameter.description} [{parameter.expected}; {default}]")


def _add_parameter(group: Any, parameter: Parameter, owner: str) -> None:
    def parse(text: str) -> Any:
        try:
            return parameter.parse(text, owner)
        except ComponentError as error:
            raise argparse.ArgumentTypeError(f"\n{error}") from None

    settings: dict[str, object] = {"type": parse, "metavar": "VALUE"}
    if parameter.type is bool:
        settings = {"action": argparse.BooleanOptionalAction}
    elif parameter.type == list[str]:
        settings = {"nargs": "*", "metavar": "TEXT"}
    elif parameter.choices:
        settings["metavar"] = f"{{{','.join(parameter.choices)}}}"
    settings |= {"required": parameter.required, "default": argparse.SUPPRESS, "help": parameter_help(parameter)}
    group.add_argument(option_name(parameter.name), **settings)
