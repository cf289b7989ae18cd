"""Complete command lines in a shell, with argcomplete: commands, options, and values of the pipeline in the line."""

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tfopt.cli.arguments import Subparsers, add_command
from tfopt.component import components, find
from tfopt.dag import tracing
from tfopt.declaration.library import component_names

HOW_TO = {
    "bash": 'add to ~/.bashrc: eval "$(tfopt completion bash)"',
    "zsh": 'add to ~/.zshrc, after compinit: eval "$(tfopt completion zsh)"',
    "fish": "add to ~/.config/fish/config.fish: tfopt completion fish | source",
}


def add_completion(subparsers: Subparsers) -> None:
    """Add ``tfopt completion``."""
    summary = "print the script that completes tfopt's commands, options and values in a shell"
    epilog = "; ".join(f"{shell}: {text}" for shell, text in HOW_TO.items())
    parser = add_command(subparsers, "completion", _completion, summary, epilog=epilog)
    parser.add_argument("shell", choices=list(HOW_TO), help="the shell")


def _completion(arguments: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["tfopt"], shell=arguments.shell))
    return 0


def complete(build_parser: Callable[[Sequence[str]], argparse.ArgumentParser]) -> None:
    """Write the completions of the line in the environment for the shell, and end the process."""
    import argcomplete
    from argcomplete.lexers import split_line

    line = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))
    words = line[3][1:]  # those before the one at the cursor, without the name of the command
    try:
        parser = build_parser(words)
    except Exception:  # a file or module in the line that cannot be read
        parser = build_parser(words[:1])
    subparsers = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    if words:
        _add_completers(subparsers.choices.get(words[0]), words[0])
    else:
        for name, component in components().items():
            subparsers.add_parser(name, help=component.summary)
    argcomplete.autocomplete(parser, always_complete_options=False)


def _add_completers(parser: argparse.ArgumentParser | None, command: str) -> None:
    """Set what completes the value of each option; of others, argcomplete completes choices and paths."""
    from argcomplete.completers import ChoicesCompleter, FilesCompleter

    completers: dict[str, object] = {
        "pipeline": _pipelines,
        "set": _values,
        "file": FilesCompleter(["yaml", "yml"]),
        **dict.fromkeys(("run", "first", "second"), _runs),
    }
    if command == "describe":
        completers["name"] = lambda **words: [*component_names(), *_pipelines(**words)]
    if ":" in command or command in component_names():
        parameters = find(command).parameters.values()
        completers = {
            each.name: ChoicesCompleter(dict.fromkeys(each.choices, "")) for each in parameters if each.choices
        }
    for action in parser._actions if parser else ():
        if action.dest in completers:
            action.completer = completers[action.dest]  # type: ignore[attr-defined]  # argcomplete reads it


def _pipelines(prefix: str, **_: Any) -> list[str]:
    from argcomplete.completers import FilesCompleter

    return [*tracing.pipelines(), *FilesCompleter(["py"])(prefix)]


def _runs(**_: Any) -> list[str]:
    from tfopt.cli.runs import FOLDER  # not for other completions, which a user waits for
    from tfopt.run_records.run_record import read_records

    return [path.name for path in read_records(FOLDER)] if FOLDER.is_dir() else []


def _values(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> Iterable[str]:
    """Complete NAME=VALUE: the names of the pipeline, then choices of a parameter, or paths of a source."""
    from argcomplete.completers import FilesCompleter

    pipeline = getattr(parsed_args, "pipeline", None)
    if not pipeline:
        return []
    dag = tracing.load(pipeline)
    name, equals, value = prefix.partition("=")
    if not equals:
        return [f"{each}=" for each in (*dag.sources, *dag.parameters)]
    parameter = dag.parameters.get(name)
    if name in dag.sources or (parameter and parameter.is_location):
        return [f"{name}={path}" for path in FilesCompleter()(value)]
    choices = ("true", "false") if parameter and parameter.type is bool else parameter.choices if parameter else ()
    return [f"{name}={choice}" for choice in choices]
