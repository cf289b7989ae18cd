"""The command ``tfopt``, and the same door in a container: ``python -m tfopt.run NAME --executor-input …``.

Exit codes: 0 done, 1 a component refused or failed, 2 wrong usage, 130 stopped by Ctrl-C.
"""

import argparse
import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tfopt
from tfopt.arguments import parser_for
from tfopt.errors import ComponentError, nearest

# TensorFlow's start-up banner would drown ours; whoever wants it sets the variable.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    _show_progress()
    try:
        return _dispatch(words)
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


def _dispatch(words: list[str]) -> int:
    commands = {"list": _list, "describe": _describe, "run": _run, "compile": _compile}
    if words[:1] in (["--version"], ["-V"]):
        print(f"tfopt {tfopt.__version__}")
        return 0
    if not words or words[0].startswith("-"):
        print(_usage())
        return 0 if words[:1] in (["-h"], ["--help"]) else 2
    if words[0] in commands:
        return commands[words[0]](words[1:])
    return _component(words[0], words[1:])


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
        "  list                the components\n"
        "  describe NAME       a component's inputs, outputs and parameters\n\n"
        f"components:\n{listed}\n\n"
        "everywhere: --json prints for machines, --debug shows tracebacks\n"
    )


def _list(words: list[str]) -> int:
    from tfopt.component import components

    parser = argparse.ArgumentParser(prog="tfopt list", description="List the components.")
    parser.add_argument("--json", action="store_true", help="print for machines")
    if parser.parse_args(words).json:
        print(json.dumps([{"name": name, "summary": found.summary} for name, found in components().items()], indent=1))
    else:
        for name, found in components().items():
            print(f"{name:18} {found.summary}")
    return 0


def _describe(words: list[str]) -> int:
    from tfopt.component import find

    parser = argparse.ArgumentParser(prog="tfopt describe", description="Describe a component.")
    parser.add_argument("name")
    parser.add_argument("--json", action="store_true", help="print the JSON schema")
    given = parser.parse_args(words)
    component = find(given.name)
    if given.json:
        print(json.dumps(component.schema(), indent=1))
    else:
        parser_for(component, f"tfopt {component.name}").print_help()
    return 0


def _component(name: str, words: list[str]) -> int:
    from tfopt import beam
    from tfopt.component import components, find

    if ":" not in name and name not in components():
        print(
            f"tfopt: no command or component {name!r}; {nearest(name, [*components(), 'run', 'compile'])}",
            file=sys.stderr,
        )
        return 2
    component = find(name)
    parser = parser_for(component, f"tfopt {name}")
    parser.add_argument("--json", action="store_true", help="print the outputs for machines")
    if words[:1] == ["--executor-input"] and len(words) == 2:
        from tfopt.kfp_step import run_step

        run_step(component, words[1])
        return 0
    given = vars(parser.parse_args(words))
    as_json = given.pop("json")
    with beam.arguments(given.pop("beam_pipeline_arg", [])):
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


def _run(words: list[str]) -> int:
    from tfopt import dag

    parser = argparse.ArgumentParser(
        prog="tfopt run",
        description="Run a DAG on this machine. Steps that an earlier run did unchanged are reused.",
        epilog=f"pipelines: {', '.join(dag.pipelines())}. Values of one: tfopt run NAME --set help",
    )
    parser.add_argument("pipeline", help="a shipped pipeline, or a .py file whose function has the file's name")
    parser.add_argument("--root", type=Path, help="the run's folder (default: runs/PIPELINE)")
    parser.add_argument(
        "--engine", choices=["beam", "local"], default="beam", help="which of TFX's runners (default: beam)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a source's path or a parameter's value"
    )
    parser.add_argument(
        "--beam-pipeline-arg",
        action="append",
        default=[],
        metavar="ARG",
        help="an argument for the Beam components, such as --beam-pipeline-arg=--runner=DataflowRunner",
    )
    parser.add_argument("--json", action="store_true", help="print what each step left, for machines")
    given = parser.parse_args(words)
    found = dag.load(given.pipeline)
    if given.set == ["help"]:
        print(_values_help(found))
        return 0
    values = _values(found, given.set)
    root = (given.root or Path("runs", found.name)).absolute()
    found.values(values)  # wrong values are refused before TFX's imports
    with _quiet_engine(root):
        from tfopt import engine

        outcomes = engine.run(found, values, root, engine=given.engine, beam_args=given.beam_pipeline_arg)
    if given.json:
        print(
            json.dumps(
                {
                    step: {
                        "reused": outcome.reused,
                        "seconds": outcome.seconds,
                        "outputs": {key: output.uri for key, output in outcome.outputs.items()},
                    }
                    for step, outcome in outcomes.items()
                },
                indent=1,
            )
        )
    else:
        from tfopt.summary import print_outcomes

        print_outcomes(outcomes)
    return 0


def _values(found: Any, given: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pair in given:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ComponentError(f"--set {pair}", "NAME=VALUE", f"write --set {pair}=…")
        parameter = found.parameters.get(name)
        values[name] = parameter.parse(text, found.name) if parameter else text
    return values


def _values_help(found: Any) -> str:
    lines = [f"{found.name}: {found.description}", ""]
    for source in found.sources.values():
        lines.append(
            f"  --set {source.name}=PATH  {source.description} [{source.type.__name__}: {source.type.contents}]"
        )
    for parameter in found.parameters.values():
        default = "required" if parameter.required else f"default: {parameter.default}"
        lines.append(f"  --set {parameter.name}=VALUE  {parameter.description} [{parameter.expected}; {default}]")
    return "\n".join(lines)


def _compile(words: list[str]) -> int:
    from tfopt import dag, kfp
    from tfopt.component import components

    parser = argparse.ArgumentParser(prog="tfopt compile", description="Write Kubeflow Pipelines v2 YAML.")
    parser.add_argument("pipeline", help="a shipped pipeline, a .py file, or a component (for its component.yaml)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.yaml", help="where to write")
    parser.add_argument(
        "--image", metavar="REF", help="the image of the steps; {kind} in it stands for each step's kind"
    )
    given = parser.parse_args(words)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    if given.pipeline in components():
        kfp.compile_component(components()[given.pipeline], given.output, given.image)
    else:
        kfp.compile_pipeline(dag.load(given.pipeline), given.output, given.image)
    print(given.output)
    return 0


def _show_progress() -> None:
    log = logging.getLogger("tfopt")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False


@contextlib.contextmanager
def _quiet_engine(root: Path) -> Iterator[None]:
    """Send what TFX, Beam and TensorFlow log to ``run.log`` in the run's folder, not over our progress."""
    root.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(root / "run.log")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger = logging.getLogger()
    previous = logger.handlers[:]
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logging.getLogger("tfopt").addHandler(handler)
    from absl import logging as absl_logging

    absl_logging.set_verbosity(absl_logging.INFO)
    absl_logging.get_absl_handler().setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.handlers[:] = previous
        logging.getLogger("tfopt").removeHandler(handler)
        handler.close()


if __name__ == "__main__":
    sys.exit(main())
