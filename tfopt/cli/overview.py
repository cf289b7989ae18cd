"""List the components by purpose and the pipelines, and describe a pipeline with its values."""

import argparse
from collections.abc import Iterator

from tfopt.cli.arguments import escape, parameter_help
from tfopt.component import components
from tfopt.dag import tracing
from tfopt.dag.dag import Dag
from tfopt.declaration.component import PURPOSES
from tfopt.declaration.library import component_names
from tfopt.declaration.parameters import parameters_schema
from tfopt.value_types import JsonObject


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


def listed() -> Iterator[dict[str, str | None]]:
    """Yield the facts of each pipeline and component."""
    for name in tracing.pipelines():
        yield {"kind": "pipeline", "name": name, "summary": tracing.load(name).description, "purpose": None}
    for name, component in components().items():
        yield {"kind": "component", "name": name, "summary": component.summary, "purpose": component.purpose}


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


def describe_pipeline(dag: Dag) -> str:
    """Return a pipeline's description, its values and its steps."""
    steps = (f"  {step.id:24} {step.component.summary}" for step in dag.steps.values())
    return "\n".join([f"{dag.name}: {dag.description}", "", describe_values(dag), "", "steps:", *steps])


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
