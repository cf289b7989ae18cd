"""Write the model card of a model artifact: parent, parameters, digests, sizes, versions."""

import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any, cast

import tfopt
from tfopt import formatting
from tfopt.artifacts import CARD, Artifact, Examples, Model, PythonModule, model_card
from tfopt.artifacts.formats import CONVERTERS, RUNTIME_PACKAGES, installed_versions
from tfopt.artifacts.model_card import IMAGE, TRAINED_ON
from tfopt.data.learned_names import learned_facts
from tfopt.declaration.component import ON_FAILURE, Component
from tfopt.errors import ComponentError
from tfopt.processes.isolation import describe, limits_of_children
from tfopt.storage.remote_files import is_remote
from tfopt.value_types import JsonObject

log = logging.getLogger(__name__)

GRAPH_BYTES = (
    100_000  # that another format is expected to have more: a SavedModel has a graph, a Keras file names layers
)
OPTIONAL = ("recovery", "inputs", "effect", "materials", "image")  # keys of a lineage that may be missing
LABEL = "label"  # the parameter of components that use labels


def write_step_card(
    component: Component, model: Model, inputs: Mapping[str, Any], parameters: Mapping[str, object]
) -> None:
    """Write ``model_card.json`` into a model artifact, and set the metadata that engines show.

    What the component put into ``model.metadata`` becomes part of the card. A component that copied a whole model
    artifact has copied its card, which is left as it is.
    """
    if (model.path / CARD).exists():
        model.metadata |= {
            key: value for key, value in model.card.facts.items() if isinstance(value, str | int | float)
        }
        return
    first = next(iter(inputs.values()), None)
    parent = first if isinstance(first, Model) else None  # a teacher or a start is not the first input
    data = next((value for value in inputs.values() if isinstance(value, Examples)), None)
    ancestor: JsonObject | None = None
    if parent:  # with the gain of a second round of fine-tuning, if there was one
        step = asdict(replace(parent.card.step, name=parent.name, digest=parent.digest))
        ancestor = {key: value for key, value in step.items() if key not in OPTIONAL or value}
    sizes = model.sizes()
    facts: JsonObject = {
        "name": component.name,
        "format": model.format,
        "digest": model.digest,
        "sizes": sizes,
        "component": component.name,
        "parameters": {name: value for name, value in parameters.items() if name != ON_FAILURE.name},
        "inputs": [name for name, value in inputs.items() if value is not None and value != []],
        "materials": _materials(inputs),
        "parent": ancestor,
        "lineage": [*parent.card.facts.get("lineage", []), ancestor] if parent else [],
        "data": {"digest": data.digest} if data else None,
        "versions": {"tfopt": tfopt.__version__, **installed_versions((*RUNTIME_PACKAGES, *CONVERTERS))},
    }
    if image := os.environ.get(IMAGE):
        facts["image"] = image
    if limits_of_children():
        facts["isolation"] = describe()
    if effect := component.effect_with(parameters):
        facts["effect"] = effect
    if learned := parent.card.facts.get("learned") if parent else _learned(data, parameters.get(LABEL)):
        facts["learned"] = learned
    own = cast(JsonObject | None, model.metadata.pop(TRAINED_ON, None))  # engines do not store it
    if not own and parent:
        own = _trained_on(parent, component, inputs.values(), parameters.get(LABEL))
    if own:
        facts[TRAINED_ON] = own
    model_card.write_card(model.path, facts | model.metadata)
    if parent and not parent.failure:
        _warn_if_larger(model, parent)
    shown: JsonObject = {"format": model.format, "digest": model.digest, "bytes": sizes.get("raw", 0)}
    model.metadata = shown | model.metadata


def _materials(inputs: Mapping[str, Any]) -> dict[str, str]:
    """Return the digest of the files of each input; a module's own digest has versions of packages in it."""
    local = {name: value for name, value in inputs.items() if isinstance(value, Artifact) and not is_remote(value.uri)}
    return {
        name: Artifact(value.uri).digest if isinstance(value, PythonModule) else value.digest
        for name, value in local.items()
    }


def _learned(data: Examples | None, label: Any) -> JsonObject:
    """Return the names in the examples that a new model was trained on."""
    if data is None or label is None or is_remote(data.uri):
        return {}
    from tfopt.data.feature_schema import read_manifest  # NumPy, which compiling a pipeline must not import

    return learned_facts(read_manifest(data.path), label)


def _trained_on(parent: Model, component: Component, inputs: Collection[Any], label: Any) -> JsonObject:
    """Return the sample of the records that a model learned from: those of its parent, and of its fine-tuning."""
    examples = next((value for value in inputs if isinstance(value, Examples)), None)
    has_module = any(isinstance(value, PythonModule) for value in inputs)
    if component.purpose == "fine_tuning" and examples and has_module:  # without a module, weights are not trained
        from tfopt.data.record_hashes import trained_on_facts  # imports NumPy

        return trained_on_facts(examples.split("train"), label, [parent.card])
    facts: JsonObject = parent.card.facts.get(TRAINED_ON) or {}
    return facts


def _warn_if_larger(model: Model, parent: Model) -> None:
    """Log the sizes of a model that is larger than its parent, whose optimizer's state counts, too."""
    try:
        before, after = (sum(file.stat().st_size for file in artifact.payload()) for artifact in (parent, model))
    except ComponentError:  # a frozen graph, which is no format of models
        return
    if after > 1.005 * before:  # as `relative_size` rounds
        is_expected = model.format != parent.format and after <= before + GRAPH_BYTES
        sizes = formatting.data_size(after), formatting.data_size(before)
        growth = formatting.relative_size(after, before)
        level = logging.INFO if is_expected else logging.WARNING
        log.log(level, "%s: %s, %s than its parent (%s)", model.name, sizes[0], growth, sizes[1])
