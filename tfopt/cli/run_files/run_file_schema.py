"""The JSON Schema of a pipeline's run file, for editors: from the options of the commands, and from the declarations.

Every value may also be a text with a variable, ``${NAME}``, and ``null``, which stands for an absent key.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from tfopt.cli.run_files.notify_settings import notify_schema
from tfopt.cli.run_files.run_file import DEFAULT_IMAGE, OPTIONS, POD_FORMS, STEPS
from tfopt.dag.dag import Dag
from tfopt.declaration.parameters import Parameter
from tfopt.kfp.images import KINDS
from tfopt.kfp.pod_options import KEYS, LISTS, RUN_KEYS
from tfopt.value_types import JsonObject

SCALAR = ["string", "number", "boolean", "null"]
VARIABLE = {"type": "string", "pattern": r"\$\{\w+\}"}


def run_file_schema(dag: Dag, parsers: Sequence[argparse.ArgumentParser]) -> JsonObject:
    """Return the schema; each option is described by the last parser that has it."""
    actions = {action.dest: action for parser in parsers for action in parser._actions}
    sections = {
        section: {key: _option(actions[key]) for key in keys if key in actions} for section, keys in OPTIONS.items()
    }
    top = sections.pop("")
    top["pipeline"] |= {"examples": [dag.name]}
    properties = {
        **top,
        "values": _mapping(f"Sources and parameters of {dag.name}: {dag.description}", _values(dag)),
        "images": _images(actions["image"]),
        "pods": _pods(dag, actions["kfp_option"]),
        "server": _mapping("The Kubeflow Pipelines server of submit and schedule.", sections["server"]),
        "schedule": _mapping("The schedule of tfopt schedule.", sections["schedule"]),
        "notify": notify_schema(),
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"Run file of the tfopt pipeline {dag.name}",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "definitions": {
            "step": _mapping("Pods of one step.", {key: _pod_setting(key) for key in POD_FORMS if key not in RUN_KEYS})
        },
    }


def _option(action: argparse.Action) -> JsonObject:
    """Describe an option by its help; one that may occur several times has a list."""
    text = (action.help or "") % {**vars(action), "prog": "tfopt"}
    if isinstance(action.default, list):
        return {"description": text, "type": ["string", "array", "null"], "items": {"type": "string"}}
    if action.choices:
        return {"description": text, "anyOf": [{"enum": [*action.choices, None]}, VARIABLE]}
    numbers = ["number"] if action.type in (int, float) else []
    return {"description": text, "type": ["string", *numbers, "null"]}


def _values(dag: Dag) -> JsonObject:
    sources = {
        name: {"type": ["string", "null"], "description": f"{source.description} [{source.type.contents}]"}
        for name, source in dag.sources.items()
    }
    return sources | {name: _parameter(parameter) for name, parameter in dag.parameters.items()}


def _parameter(parameter: Parameter) -> JsonObject:
    """Return a parameter's schema with the other forms that a run file allows."""
    declared = parameter.schema()
    common: JsonObject = {key: declared.pop(key) for key in ("description", "default") if key in declared}
    forms = [declared, {"type": "null"}]
    if parameter.type == list[str]:
        items: list[JsonObject] = [{"type": "string"}]
        if parameter.reads and parameter.reads.mapping:
            items.append(parameter.reads.mapping.schema())
        array = {"type": "array", "items": items[0] if len(items) == 1 else {"anyOf": items}}
        forms = [array, *items, {"type": "null"}]
    elif "enum" in declared or parameter.type is not str:
        forms.append(VARIABLE)
    return {**common, "anyOf": forms}


def _images(action: argparse.Action) -> JsonObject:
    kinds = {kind: {"type": ["string", "null"], "description": f"the image of the kind {kind}"} for kind in KINDS}
    kinds = {DEFAULT_IMAGE: {"type": ["string", "null"], "description": "the image of the other kinds"}, **kinds}
    one = {"type": ["string", "null"]}
    mapping = {"type": "object", "properties": kinds, "additionalProperties": {"type": ["string", "null"]}}
    return {"description": action.help, "anyOf": [one, mapping]}


def _pods(dag: Dag, action: argparse.Action) -> JsonObject:
    settings = {key: _pod_setting(key) for key in POD_FORMS}
    steps = {name: {"$ref": "#/definitions/step"} for name in dag.steps}
    sources = {name: _mapping(f"The source {name}.", {"reuse": settings["reuse"]}) for name in dag.sources}
    text = "Settings of single steps, which have priority over those of all steps."
    return _mapping(action.help or "", {**settings, STEPS: _mapping(text, {**sources, **steps})})


def _pod_setting(key: str) -> JsonObject:
    """Return the schema of an option of pods: a value, a list of values, or values by name."""
    pattern, example = KEYS[POD_FORMS[key]]
    description = f"such as {example}"
    # A number has no pattern in JSON Schema; the command checks it.
    forms = [{"pattern": f"^(?:{pattern})$"}, VARIABLE, {"not": {"type": "string"}}]
    value: JsonObject = {"type": SCALAR, "anyOf": forms}
    if "." in POD_FORMS[key]:
        return {"description": description, "type": ["object", "null"], "additionalProperties": value}
    if key in LISTS:
        return {"description": description, "anyOf": [value, {"type": "array", "items": value}]}
    return {"description": description, **value}


def _mapping(description: str, properties: Mapping[str, Any]) -> JsonObject:
    return {
        "description": description,
        "type": ["object", "null"],
        "properties": dict(properties),
        "additionalProperties": False,
    }
