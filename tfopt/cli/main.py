"""The ``tfopt`` command, which containers run as ``python -m tfopt.run``: argument parser, exit codes, terminal log.

docs/operate.md lists the exit codes.
"""

import argparse
import contextlib
import functools
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import tfopt
from tfopt.cli.arguments import CommandParser, error_text, normalize_options
from tfopt.cli.commands import COMMANDS, RUN_FILE_COMMANDS, add_component, use_values
from tfopt.cli.completion import complete
from tfopt.cli.overview import component_list, pipeline_list
from tfopt.cli.run_files.run_file import RunFile, files_of
from tfopt.cli.terminal.detection import print_error, remove_progress_bar
from tfopt.cli.terminal.json_log import FormatError, is_json, log_format
from tfopt.cli.terminal.log_redirect import progress_on_terminal
from tfopt.cli.termination import (
    INTERRUPTED,
    TERMINATED,
    Terminated,
    discard_output,
    interrupted_by_sigterm,
    interruptible,
    open_streams,
)
from tfopt.declaration.library import component_names
from tfopt.error_messages import machine_error, nearest, path_error
from tfopt.errors import ComponentError
from tfopt.formatting import indented
from tfopt.processes.exit_status import describe_exit
from tfopt.processes.isolation import step_process
from tfopt.processes.startup import speed_up_imports
from tfopt.processes.supervision import Death, run_supervised
from tfopt.storage import staging
from tfopt.storage.scratch import remove_abandoned, scratch_folder

# TensorFlow's start-up messages would hide the progress of the command; a user who needs them sets the variable.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
CLOSED_PIPE = 141  # the code of a process that SIGPIPE ended
REQUESTED = {-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP, -signal.SIGQUIT}


def supervised_main(arguments: Sequence[str] | None = None) -> int:
    """Run one command in a process that may die without an exception, and report that; return the exit code.

    With ``--debug`` it runs in this process, as debuggers and profilers need it.
    """
    speed_up_imports()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "_ARGCOMPLETE" in os.environ:  # a shell completes a line
        complete(build_parser)
    open_streams()  # otherwise the memory that both processes share would get the number of a closed stream
    return _run_formatted(words, _run_debugged if "--debug" in words else _run_supervised, is_process=True)


def _run_formatted(words: Sequence[str], run: Callable[[list[str]], int], *, is_process: bool = False) -> int:
    """Run a command with the log format that its words name."""
    try:
        with log_format(words, is_process=is_process) as others:
            return run(others)
    except FormatError as error:
        print_error(f"tfopt: error: {error}")
        return 2


def _run_debugged(words: Sequence[str]) -> int:
    """Run a command in this process; a traceback is part of JSON lines."""
    if not is_json():
        return main(words)
    try:
        return main(words)
    except Exception:
        traceback.print_exc()
        return 1


def _run_supervised(words: Sequence[str]) -> int:
    process = os.getpid()
    with step_process():
        end = run_supervised(lambda: main(words))
    if process == os.getpid():  # not in the other one, which may not remove its folder once it is limited
        remove_abandoned()
    return end if isinstance(end, int) else report_death(end, words)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words  # allowed at every position, also before the command
    words = [word for word in words if word != "--debug"]
    open_streams()
    return _run_formatted(words, functools.partial(_run_caught, debug=debug))


def _run_caught(words: list[str], *, debug: bool) -> int:
    """Run a command and return its exit code, also after an exception, which is reported."""
    try:
        with interruptible(), progress_on_terminal(), interrupted_by_sigterm(), scratch_folder():
            code = _run_command(words, debug)
            print(end="", flush=True)  # otherwise an error of the output appears after the end, as a traceback
        return code
    except BrokenPipeError:  # the reader, such as `head`, has what it needs
        discard_output()
        return CLOSED_PIPE
    except ComponentError as error:
        if debug:
            raise
        report_error(error, words)
        return 1
    except KeyboardInterrupt as error:
        what, code = ("terminated", TERMINATED) if isinstance(error, Terminated) else ("interrupted", INTERRUPTED)
        print_error(f"tfopt: {what}; incomplete outputs are removed, and the next run resumes")
        return code
    except Exception as error:
        if debug:
            raise
        if isinstance(error, OSError) and error.filename is None:
            discard_output()  # a full device: what is buffered would be written again at the end
        converted = machine_error(error) or path_error(error)
        report_error(converted or error, words, "\nrun it again with --debug for the traceback")
        return 1


def report_error(error: Exception, words: Sequence[str], hint: str = "") -> None:
    """Print an error on the standard error; with ``--json`` among the words, print it as JSON, too."""
    if isinstance(error, ComponentError):
        print_error(f"tfopt: error\n{error_text(error)}{hint}")
        parts = {"received": error.received, "expected": error.expected, "how_to_fix": error.fix}
    else:
        print_error(f"tfopt: {type(error).__name__}: {indented(str(error))}{hint}")
        parts = {"received": f"{type(error).__name__}: {error}"}
    if "--json" in words:
        with contextlib.suppress(OSError):  # the error may be that of the output
            print(json.dumps({"error": parts}, indent=1), flush=True)


def report_death(death: Death, words: Sequence[str] = ()) -> int:
    """Print what ended the process, and return the exit code of the command."""
    remove_progress_bar()
    for output in map(Path, death.work.get("outputs", ())):
        staging.remove_abandoned(output.parent, output.name)
    with scratch_folder():  # removes the folders of ended processes
        pass
    if death.status in REQUESTED:
        print_error(f"tfopt: {describe_exit(death.status)}; the next run resumes")
        return 128 - death.status
    report_error(death_error(death), words)
    return 1


def death_error(death: Death) -> ComponentError:
    """Describe a death, its likely cause, and what can be done.

    >>> print(death_error(Death(0, {"component": "train"}, "")))
    received: train: the process ended with status 0 before its work was done
    expected: code that returns, or raises an exception
    how to fix: remove the call that ends the process (os._exit, or exit in C) from the code that the step runs
    """
    place = f", in {death.line}" if death.line else ""
    step = f"{death.work['component']}: " if "component" in death.work else ""
    received = f"{step}the process {describe_exit(death.status)}{place}"
    if death.status >= 0:
        fix = "remove the call that ends the process (os._exit, or exit in C) from the code that the step runs"
        return ComponentError(f"{received} before its work was done", "code that returns, or raises an exception", fix)
    if death.status == -signal.SIGKILL:
        fix = "run it on a machine, or in a pod, with more; the kernel's log (dmesg) names the processes it killed"
        return ComponentError(received, "enough memory", fix)
    fix = (
        "see the lines printed above: std::bad_alloc means too little memory; otherwise correct the code at that line, "
        "or remove from the model what that library cannot do"
    )
    return ComponentError(received, "libraries and code that do not crash", fix)


def build_parser(words: Sequence[str], debug: bool = False) -> argparse.ArgumentParser:
    """Build the parser of ``tfopt``, with a subparser for each command, and for the component that is called.

    The command line may begin with a component or ``MODULE:NAME``; with `debug` its libraries log to the terminal.
    """
    parser = CommandParser(
        prog="tfopt",
        description=(tfopt.__doc__ or "").splitlines()[0],
        epilog=_overview() if not words or words[0].startswith("-") else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", "-V", action="version", version=f"tfopt {tfopt.__version__}")
    parser.set_defaults(run_command=functools.partial(_print_usage, parser))
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", prog="tfopt", parser_class=CommandParser)
    for add_command in COMMANDS.values():
        add_command(subparsers)
    if words and words[0] not in COMMANDS and not words[0].startswith("-"):
        add_component(subparsers, words, debug)
    if words and words[0] in RUN_FILE_COMMANDS:
        command_parser = subparsers.choices[words[0]]
        if files := files_of(words[1:]):
            RunFile(files, words[0]).set_defaults(command_parser)
        use_values(command_parser, words[1:])
    return parser


def _run_command(words: list[str], debug: bool) -> int:
    names = [*component_names(), *COMMANDS]
    if words and words[0] not in names and ":" not in words[0] and not words[0].startswith("-"):
        print_error(f"tfopt: error: no command or component {words[0]!r}; {nearest(words[0], names)}")
        return 2
    arguments = build_parser(words, debug).parse_args([*words[:1], *normalize_options(words[1:])])
    return int(arguments.run_command(arguments))


def _print_usage(parser: argparse.ArgumentParser, _: argparse.Namespace) -> int:
    parser.print_help()
    return 2


def _overview() -> str:
    return (
        f"components (tfopt COMPONENT … runs one; MODULE:NAME is a component of yours)\n\n{component_list()}\n\n"
        f"{pipeline_list()}\n\n"
        "tfopt NAME --help explains a command or component. Everywhere, --json prints the results as JSON, "
        "--log-format json\nwrites each log line as a JSON object, and --debug shows tracebacks and the messages of "
        "libraries.\n"
    )


if __name__ == "__main__":
    sys.exit(supervised_main())
