"""Test the declaration of every component: docstring, schema, command line, DAG, TFX and KFP."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from tfopt.artifacts import Evaluation
from tfopt.cli.arguments import component_parser, normalize_options, option_name
from tfopt.component import Component, components
from tfopt.dag.tracing import trace
from tfopt.errors import ComponentError

ALL = pytest.mark.parametrize("component", components().values(), ids=components())
WRONG = {bool: "perhaps", int: 1.5, float: "much", str: 7, list[str]: [7]}


@ALL
def test_the_docstring_documents_exactly_the_signature(component: Component):
    assert list(component.descriptions) == list(component.signature.parameters)
    assert all(component.descriptions.values())
    assert all(parameter.description for parameter in component.parameters.values())
    assert component.summary.endswith(".")


@ALL
def test_the_signature_is_inputs_outputs_optional_inputs_then_keyword_parameters(component: Component):
    def rank(name: str) -> int:
        port = component.inputs.get(name)
        return 0 if port and not port.optional else 1 if name in component.outputs else 2 if port else 3

    names = list(component.signature.parameters)
    assert names == sorted(names, key=rank)
    arguments = component.signature.parameters.values()
    assert all(argument.kind.name == "KEYWORD_ONLY" for argument in arguments if rank(argument.name) == 3)
    assert component.outputs


@ALL
def test_the_schema_is_json_schema_and_takes_the_defaults(component: Component):
    schema = json.loads(json.dumps(component.schema()))
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    validator.validate(
        {
            p.name: p.sample() if p.required else p.default
            for p in component.parameters.values()
            if p.required or p.default is not None
        }
    )


@ALL
def test_the_command_line_gives_back_every_value(component: Component):
    values = {p.name: p.sample() if p.default is None else p.default for p in component.parameters.values()}
    values |= {name: f"a path/{name}" for name in component.outputs}
    values |= {port.name: [f"ä/{port.name}"] if port.many else f"ä/{port.name}" for port in component.inputs.values()}
    words: list[str] = []
    for name, value in values.items():
        if isinstance(value, bool):
            words.append(option_name(name) if value else option_name(name).replace("--", "--no-"))
        else:
            words += [f"--{name}", *(value if isinstance(value, list) else [str(value)])]
    parsed = vars(component_parser(component, "tfopt").parse_args(normalize_options(words)))
    assert {name: parsed[name] for name in values} == values


@ALL
def test_a_bad_value_is_refused_when_the_dag_is_built_in_three_parts(component: Component):
    for parameter in component.parameters.values():
        for wrong in _wrong_values(parameter):
            with pytest.raises(ComponentError) as refusal:
                trace(_dag_with(component, {parameter.name: wrong}))
            assert parameter.name in refusal.value.received
            assert refusal.value.expected
            assert refusal.value.fix


@ALL
def test_an_unknown_name_is_refused_with_the_nearest(component: Component):
    parameter = next(iter(component.parameters), "")
    with pytest.raises(ComponentError, match=f"did you mean.*{parameter}" if parameter else "a name of its signature"):
        trace(_dag_with(component, {f"{parameter}x": 1}))


@ALL
def test_tfx_builds_it_with_the_declared_ports(component: Component):
    from tfx import types

    from tfopt.tfx.components import TYPES, node

    wires = {
        port.name: [types.Channel(type=TYPES[port.type])] * 2 if port.many else types.Channel(type=TYPES[port.type])
        for port in component.inputs.values()
    }
    built = node(component, **wires, **_required(component))
    expected = {
        name
        for port in component.inputs.values()
        for name in ([f"{port.name}_1", f"{port.name}_2"] if port.many else [port.name])
    }
    assert set(built.inputs) == expected
    assert set(built.outputs) == set(component.outputs)


@ALL
def test_kfp_compiles_it_and_loads_it_back(component: Component, tmp_path: Path):
    from kfp import components as kfp_components

    from tfopt.kfp.compiler import compile_component

    compile_component(component, tmp_path / "component.yaml")
    spec = kfp_components.load_component_from_file(str(tmp_path / "component.yaml")).component_spec
    artifacts = {f"{port.name}_1" if port.many else port.name for port in component.inputs.values()}
    assert set(spec.inputs) == artifacts | set(component.parameters)
    pages = {f"{port.name}_page" for port in component.outputs.values() if port.type.page}
    judged = [name for name in ("baseline", "candidates_1") if name in artifacts]  # each one's matrix is an output
    drawn = {f"{p.name}_{model}" for p in component.outputs.values() if p.type is Evaluation for model in judged}
    assert set(spec.outputs) == pages | drawn | set(component.outputs)
    for name, parameter in component.parameters.items():
        assert spec.inputs[name].optional == (not parameter.required)
        if parameter.default is not None:
            assert spec.inputs[name].default == parameter.default


def test_declaring_compiling_and_listing_import_no_tensorflow_tfx_or_beam():
    code = """
import sys, tfopt.cli.main, tfopt.kfp.compiler
from tfopt.component import components
from tfopt.dag.tracing import load, pipelines
for component in components().values(): component.schema()
for name in pipelines(): load(name)
heavy = {'tensorflow', 'keras', 'tf_keras', 'tfx', 'apache_beam', 'ai_edge_litert', 'pandas'} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def _wrong_values(parameter):
    yield WRONG[parameter.type]
    if parameter.choices:
        yield "no-such-choice"
    if parameter.between and parameter.between.low is not None:
        yield parameter.type(parameter.between.low - 1)
    if parameter.between and parameter.between.high is not None:
        yield parameter.type(parameter.between.high + 1)
    if parameter.between and parameter.type is float:
        yield float("nan")
    if parameter.reads:
        yield "\n" if parameter.type is str else ["\n"]


def _required(component: Component) -> dict:
    return {p.name: p.sample() for p in component.parameters.values() if p.required}


def _dag_with(component: Component, values: dict):
    """A pipeline of this one component, wired to sources of the right types."""
    from tfopt.dag.dag import PipelineInput

    def pipeline(steps) -> None:
        wires = {port.name: PipelineInput(port.name, port.type, False, "") for port in component.inputs.values()}
        wires = {name: [wire] if component.inputs[name].many else wire for name, wire in wires.items()}
        steps(component, **wires, **_required(component) | values)

    return pipeline
