"""The command ``tfopt``, and the same door in a container: ``python -m tfopt.run NAME --executor-input …``.

Exit codes: 0 done, 1 a component refused or failed, 2 wrong usage, 130 stopped by Ctrl-C.
"""

import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence

import tfopt
from tfopt.cli import commands
from tfopt.cli.arguments import dashed, parser_for
from tfopt.cli.log_redirect import libraries_said_aside
from tfopt.errors import ComponentError, nearest

# TensorFlow's start-up banner would drown ours; whoever wants it sets the variable.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        with _progress_shown():
            return _dispatch(words, debug)
    except ComponentError as error:
        if debug:
            raise
        print(f"tfopt: error\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tfopt: stopped; nothing half-written is left, and the next run resumes", file=sys.stderr)
        return 130
    except Exception as error:
        if debug:
            raise
        print(f"tfopt: {type(error).__name__}: {error}\nrun it again with --debug for the traceback", file=sys.stderr)
        return 1


def _dispatch(words: list[str], debug: bool) -> int:
    if words[:1] in (["--version"], ["-V"]):
        print(f"tfopt {tfopt.__version__}")
        return 0
    if not words or words[0].startswith("-"):
        print(_usage())
        return 0 if words[:1] in (["-h"], ["--help"]) else 2
    if words[0] in commands.COMMANDS:
        return commands.COMMANDS[words[0]](words[1:])
    return _component(words[0], words[1:], debug)


def _usage() -> str:
    from tfopt.component import components

    width = max(len(name) for name in components())
    listed = "\n".join(f"  {name:{width}}  {found.summary}" for name, found in components().items())
    return (
        f"{(tfopt.__doc__ or '').splitlines()[0]}\n\n"
        "usage: tfopt COMMAND … | tfopt COMPONENT …   (--help after either teaches it)\n\n"
        "commands:\n"
        "  run PIPELINE        run a DAG here: retrain, optimize, or a .py file of yours\n"
        "  compile PIPELINE    write a DAG as Kubeflow Pipelines v2 YAML\n"
        "  submit PIPELINE     run a DAG on a Kubeflow Pipelines server\n"
        "  schedule PIPELINE   run it there again and again\n"
        "  list                the components\n"
        "  describe NAME       a component's inputs, outputs and parameters\n\n"
        f"components:\n{listed}\n\n"
        "everywhere: --json prints for machines, --debug shows tracebacks, and what the libraries say\n"
    )


def _component(name: str, words: list[str], debug: bool) -> int:
    from tfopt.component import components, find
    from tfopt.data import beam_runner as beam

    if ":" not in name and name not in components():
        print(
            f"tfopt: no command or component {name!r}; {nearest(name, [*components(), *commands.COMMANDS])}",
            file=sys.stderr,
        )
        return 2
    component = find(name)
    parser = parser_for(component, f"tfopt {name}")
    parser.add_argument("--json", action="store_true", help="print the outputs for machines")
    if words[:1] == ["--executor-input"] and len(words) == 2:
        from tfopt.kfp.step import run_step

        run_step(component, words[1])
        return 0
    given = vars(parser.parse_args(dashed(words)))
    as_json = given.pop("json")
    said = contextlib.nullcontext() if debug else libraries_said_aside()
    with beam.arguments(given.pop("beam_pipeline_arg", [])), said:
        outputs = component(**{key: value for key, value in given.items() if value is not None})
    if as_json:
        print(
            json.dumps(
                {key: {"uri": output.uri, "metadata": output.metadata} for key, output in outputs.items()}, indent=1
            )
        )
    else:
        for key, output in outputs.items():
            print(f"{key}: {output.uri}")
    return 0


@contextlib.contextmanager
def _progress_shown() -> Iterator[None]:
    """Our own log on the terminal, unless whoever calls us shows it already."""
    log = logging.getLogger("tfopt")
    if log.handlers:
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    level, propagate = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate


if __name__ == "__main__":
    sys.exit(main())
