"""Compare what three engines run for one DAG: TFX's representation, Kubeflow's YAML, calls in this process."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

import tests.object_store  # noqa: F401  (Beam finds file systems among the defined classes)
from tfopt.artifacts import Artifact
from tfopt.component import Component
from tfopt.dag.dag import Dag
from tfopt.dag.tracing import load, pipelines
from tfopt.kfp import compiler as kfp
from tfopt.kfp.container_entry import read_parameter_value

Graph = dict[str, dict[str, Any]]  # node: its component, edges {slot: (producer, output)} and parameter values


@pytest.mark.parametrize("name", pipelines())
def test_all_engines_get_the_same_nodes_edges_and_parameters(name: str, tmp_path: Path):
    dag = load(name)
    values: dict[str, Any] = {source: f"objects://{tmp_path}/{source}" for source in dag.sources}
    for source in dag.sources:
        (tmp_path / source).write_text(source)
    values |= {"label": "digit"} if "label" in dag.parameters else {}
    values |= {parameter.name: parameter.sample() for parameter in dag.parameters.values() if parameter.required}
    through_tfx, through_kfp = tfx_graph(dag, values, tmp_path), kfp_graph(dag, values, tmp_path)
    in_process = process_graph(dag, values, tmp_path / "root")
    assert through_tfx.keys() == through_kfp.keys() == in_process.keys()
    assert set(through_tfx) == {*dag.sources, *dag.steps}
    for node in through_tfx:
        assert through_kfp[node] == through_tfx[node] == in_process[node], node
    assert sum(len(node["edges"]) for node in through_tfx.values()) >= len(dag.steps)


def tfx_graph(dag: Dag, values: dict[str, Any], folder: Path) -> Graph:
    """From TFX's intermediate representation, which its runners walk."""
    from tfx.dsl.compiler.compiler import Compiler

    from tfopt.tfx.components import CODE_PARTS, COMPONENT, IMPLEMENTATION, RUN, decoded_parameters
    from tfopt.tfx.runner import pipeline

    graph: Graph = {}
    for one in Compiler().compile(pipeline(dag, values, folder)).nodes:
        node = one.pipeline_node
        name = node.node_info.id
        arguments = {key: value.field_value.string_value for key, value in node.parameters.parameters.items()}
        if name in dag.sources:
            graph[name] = {"component": None, "edges": {}, "values": {"uri": arguments["artifact_uri"]}}
            continue
        component = dag.steps[name].component
        fields = {key: value.field_value for key, value in node.parameters.parameters.items()}
        raw = {key: getattr(field, field.WhichOneof("value")) for key, field in fields.items()}
        edges = {
            slot: (entry.channels[0].producer_node_query.id, entry.channels[0].output_key)
            for slot, entry in node.inputs.inputs.items()
            if entry.channels
        }
        assert raw.keys() <= {*component.parameters, COMPONENT, IMPLEMENTATION, CODE_PARTS, RUN}
        graph[name] = {
            "component": raw[COMPONENT],
            "edges": {slot: (node, None if node in dag.sources else key) for slot, (node, key) in edges.items()},
            "values": decoded_parameters(component, raw),
        }
    return graph


def kfp_graph(dag: Dag, values: dict[str, Any], folder: Path) -> Graph:
    """From the compiled YAML, with the run's values put in as the server does."""
    kfp.compile_pipeline(dag, folder / "p.yaml", sources=values)
    spec = next(yaml.safe_load_all((folder / "p.yaml").read_text()))
    tasks = spec["root"]["dag"]["tasks"]
    inputs = {key: entry.get("defaultValue") for key, entry in spec["root"]["inputDefinitions"]["parameters"].items()}
    inputs |= {f"{name}_uri" if name in dag.sources else name: value for name, value in values.items()}
    graph: Graph = {}
    for task in tasks.values():
        declared = spec["components"][task["componentRef"]["name"]]
        arguments = {
            key: inputs[wire["componentInputParameter"]]
            if "componentInputParameter" in wire
            else wire["runtimeValue"]["constant"]
            for key, wire in task["inputs"].get("parameters", {}).items()
        }
        edges = {}
        for slot, wire in task["inputs"].get("artifacts", {}).items():
            producer = tasks[wire["taskOutputArtifact"]["producerTask"]]["taskInfo"]["name"]
            key = wire["taskOutputArtifact"]["outputArtifactKey"]
            edges[slot] = (producer, None if producer in dag.sources else key)
        if "executorLabel" in declared:
            container = spec["deploymentSpec"]["executors"][declared["executorLabel"]].get("container", {})
            pairs = pairwise(container.get("args", []))
            same = dict(word.split("=") for option, word in pairs if option == "--same-artifact")
            edges |= {name: edges[other] for name, other in same.items()}
        name = task["taskInfo"]["name"]
        if name in dag.sources:
            graph[name] = {"component": None, "edges": edges, "values": arguments}
            continue
        defaults = {
            key: entry["defaultValue"]
            for key, entry in declared["inputDefinitions"].get("parameters", {}).items()
            if "defaultValue" in entry
        }
        word = spec["deploymentSpec"]["executors"][declared["executorLabel"]]["container"]["command"][-1]
        component = dag.steps[name].component
        read = {
            key: read_parameter_value(component, key, value) for key, value in {**defaults, **arguments}.items()
        }  # as the step does
        effective = {key: value for key, value in read.items() if value is not None}
        graph[name] = {
            "component": f"tfopt.components.{word}.component:{word}" if ":" not in word else word,
            "edges": edges,
            "values": effective,
        }
    return graph


def process_graph(dag: Dag, values: dict[str, Any], root: Path) -> Graph:
    """From the arguments of each component, which are recorded; each output gets a file."""
    from tfopt.process_engine.runner import run

    graph: Graph = {
        source: {"component": None, "edges": {}, "values": {"uri": values[source]}}
        for source in dag.sources
        if source in values
    }
    calls: list[dict[str, Any]] = []

    def record(component: Component, arguments: Mapping[str, Any]) -> dict[str, Artifact]:
        calls.append(dict(arguments))
        outputs = {name: port.type(arguments[name]) for name, port in component.outputs.items()}
        for output in outputs.values():
            output.path.mkdir(parents=True)
            (output.path / "content").write_text(f"{output.path}")
        return outputs

    steps = {id: replace(step, component=recording(step.component, record)) for id, step in dag.steps.items()}
    run(replace(dag, steps=steps), values, root)
    for step, arguments in zip(dag.with_sources(values).steps.values(), calls, strict=True):
        component, edges = step.component, {}
        for name in arguments.keys() & component.inputs.keys():
            paths = arguments[name] if component.inputs[name].many else [arguments[name]]
            slots = [f"{name}_{index}" for index in range(1, len(paths) + 1)] if component.inputs[name].many else [name]
            edges |= {slot: producer(Path(path), root) for slot, path in zip(slots, paths, strict=True)}
        parameters = {name: value for name, value in arguments.items() if name in component.parameters}
        graph[step.id] = {
            "component": component.path,
            "edges": edges,
            "values": {name: value for name, value in component.check(parameters).items() if value is not None},
        }
    return graph


def recording(component: Component, run: Any) -> Component:
    """Return a component with the same declaration that is executed by another function."""
    options = {name: getattr(component, name) for name in ("image", "beam", "memory", "model_signature", "on_failure")}
    return Component(component.function, run, **options)


def producer(path: Path, root: Path) -> tuple[str, str | None]:
    """Return the node and output that a path in the run's folder belongs to; a source has no output."""
    if not path.is_relative_to(root):
        return path.name, None
    _, step, output, _ = path.relative_to(root).parts
    return step, output
