"""The subcommands ``list`` and ``describe``: components by purpose, pipelines, and the values of a pipeline."""

import argparse
import json
from typing import Any

from tfopt.cli.arguments import Subparsers, add_command, add_json_option, component_parser, escape, parameter_help
from tfopt.component import components, find
from tfopt.dag import tracing
from tfopt.dag.dag import Dag
from tfopt.declaration.component import PURPOSES
from tfopt.declaration.library import component_names
from tfopt.declaration.parameters import parameters_schema
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.value_types import JsonObject


def add_list(subparsers: Subparsers) -> None:
    """Add ``tfopt list``."""
    add_json_option(add_command(subparsers, "list", _list, "list the pipelines, and the components by purpose"))


def _list(arguments: argparse.Namespace) -> int:
    if arguments.json:
        rows: list[Any] = [("pipeline", name, tracing.load(name).description, None) for name in tracing.pipelines()]
        rows += [("component", name, component.summary, component.purpose) for name, component in components().items()]
        keys = ("kind", "name", "summary", "purpose")
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=1))
    else:
        print(f"{pipeline_list()}\n\n{component_list()}")
    return 0


def add_describe(subparsers: Subparsers) -> None:
    """Add ``tfopt describe``."""
    summary = "show the inputs, outputs and parameters of a component, or the values and steps of a pipeline"
    parser = add_command(subparsers, "describe", _describe, summary, "Describe a component or pipeline.")
    parser.add_argument("name", help="a component, MODULE:NAME, a shipped pipeline, or a .py file")
    add_json_option(parser, "print the JSON schema")


def _describe(arguments: argparse.Namespace) -> int:
    if is_pipeline(arguments.name):
        dag = tracing.load(arguments.name)
        always = dag.with_sources({}).steps
        steps = (
            f"  {step.id:24} {step.component.summary}{'' if step.id in always else ' (with optional sources only)'}"
            for step in dag.steps.values()
        )
        text = "\n".join([f"{dag.name}: {dag.description}", "", describe_values(dag), "", "steps:", *steps])
        print(json.dumps(pipeline_facts(dag), indent=1) if arguments.json else text)
        return 0
    names = [*component_names(), *tracing.pipelines()]
    if ":" not in arguments.name and arguments.name not in names:
        raise ComponentError(arguments.name, "the name of a component or pipeline", nearest(arguments.name, names))
    component = find(arguments.name)
    if arguments.json:
        print(json.dumps(component.schema(), indent=1))
    else:
        component_parser(component, f"tfopt {component.name}").print_help()
    return 0


def is_pipeline(name: str) -> bool:
    """Return True for a shipped pipeline or a Python file."""
    return name.endswith(".py") or name in tracing.pipelines()


def component_list() -> str:
    """Return a line for each component, grouped by purpose."""
    all_components = components()
    width = max(map(len, all_components))
    lines = []
    for purpose, title in PURPOSES.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:{width}}  {one.summary}" for name, one in all_components.items() if one.purpose == purpose]
    return "\n".join(lines[1:])


def pipeline_list() -> str:
    """Return a line for each pipeline."""
    width = max(map(len, component_names()))
    lines = (f"  {name:{width}}  {tracing.load(name).description}" for name in tracing.pipelines())
    return "\n".join(["pipelines (tfopt run NAME):", *lines])


def describe_values(dag: Dag) -> str:
    """Return the help of a pipeline's values: for each source and parameter what it is, what it allows, its default."""
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, add_help=False)
    sources = parser.add_argument_group("sources (--set NAME=PATH)")
    for source in dag.sources.values():
        optional = "; optional" if source.optional else ""
        text = f"{source.description} [{source.type.__name__}: {source.type.contents}{optional}]"
        sources.add_argument(source.name, help=escape(text))
    parameters = parser.add_argument_group("parameters (--set NAME=VALUE)")
    for parameter in dag.parameters.values():
        parameters.add_argument(parameter.name, help=parameter_help(parameter))
    return parser.format_help().strip()


def pipeline_facts(dag: Dag) -> JsonObject:
    """Return the declaration of a pipeline as JSON Schema of its parameters, with its sources and steps."""
    return {
        **parameters_schema(dag.name, dag.description, dag.parameters),
        "sources": {
            source.name: {"type": source.type.__name__, "optional": source.optional, "description": source.description}
            for source in dag.sources.values()
        },
        "steps": {step.id: step.component.name for step in dag.steps.values()},
        "outputs": {name: output.type.__name__ for name, output in dag.outputs.items()},
    }
