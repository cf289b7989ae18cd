"""What ``tfopt`` does besides running one component: list, describe, run a DAG; and `tfopt.cli.kubeflow`'s commands."""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfopt.artifacts import Artifact, Benchmark, Decision, Evaluation, Pushed
from tfopt.cli import kubeflow
from tfopt.cli.arguments import assigned, parser_for
from tfopt.cli.log_redirect import libraries_said_to
from tfopt.component import components, find
from tfopt.dag import tracing as trace
from tfopt.dag.dag import Dag


def _list(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tfopt list", description="List the components.")
    parser.add_argument("--json", action="store_true", help="print for machines")
    if parser.parse_args(words).json:
        print(json.dumps([{"name": name, "summary": found.summary} for name, found in components().items()], indent=1))
    else:
        for name, found in components().items():
            print(f"{name:18} {found.summary}")
    return 0


def _describe(words: list[str]) -> int:
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


def _run(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="tfopt run",
        description="Run a DAG on this machine. Steps that an earlier run did unchanged are reused.",
        epilog=f"pipelines: {', '.join(trace.pipelines())}. Values of one: tfopt run NAME --set help",
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
    found = trace.load(given.pipeline)
    if given.set == ["help"]:
        print(_values_help(found))
        return 0
    values = assigned(found, given.set)
    root = (given.root or Path("runs", found.name)).absolute()
    found.values(values)  # wrong values are refused before TFX's imports
    with libraries_said_to(root / "run.log"):
        from tfopt.tfx import runner as engine

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
        _tell({type(output): output for outcome in outcomes.values() for output in outcome.outputs.values()})
    return 0


def _tell(left: Mapping[type[Artifact], Any]) -> None:
    """End a run with what its user came for: the table, the report, the pushed model."""
    from tfopt.cli.summary_table import print_summary

    if {Decision, Evaluation, Benchmark} <= left.keys():
        print_summary(left[Decision], left[Evaluation], left[Benchmark])
        print(f"report: {left[Decision].path / Decision.page}")
    if Pushed in left:
        pushed = left[Pushed].read()
        print(f"pushed: {pushed['path']}" if pushed["pushed"] else f"not pushed: {pushed['reason']}")


def _values_help(found: Dag) -> str:
    lines = [f"{found.name}: {found.description}", ""]
    for source in found.sources.values():
        lines.append(
            f"  --set {source.name}=PATH  {source.description} [{source.type.__name__}: {source.type.contents}]"
        )
    for parameter in found.parameters.values():
        default = "required" if parameter.required else f"default: {parameter.default}"
        lines.append(f"  --set {parameter.name}=VALUE  {parameter.description} [{parameter.expected}; {default}]")
    return "\n".join(lines)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "list": _list,
    "describe": _describe,
    "run": _run,
    "compile": kubeflow.compile,
    "submit": kubeflow.submit,
    "schedule": kubeflow.schedule,
}
