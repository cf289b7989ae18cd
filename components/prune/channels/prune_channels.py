"""Remove channels of a model, verify the smaller model, fine-tune it, save it, and compare it with its baseline."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tfopt import keras_models
from tfopt.artifacts import Examples, KerasModel, Model
from tfopt.artifacts.formats import RUNTIME_PACKAGES, installed_versions
from tfopt.components.prune.channels.importance import Losses, label_free_losses, labeled_losses
from tfopt.components.prune.channels.latency import LatencyMeter
from tfopt.components.prune.channels.latency_report import PAGE, render_html
from tfopt.components.prune.channels.selection import Removal, remove_channels
from tfopt.components.prune.kernels import NAMES, check_not_shrunk
from tfopt.components.prune.masked_training import fine_tune
from tfopt.components.prune.parameters import Settings
from tfopt.components.prune.prune_weights import FIX, describe_channels
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import draw_inputs
from tfopt.errors import ComponentError
from tfopt.keras_models.kernels import kernels_of
from tfopt.keras_models.layer_graph import Layer
from tfopt.measurement import parity
from tfopt.measurement.machine_fingerprint import cpu_facts
from tfopt.runtimes.keras import input_specs
from tfopt.training.checkpointing.stored_measurements import StoredMeasurements
from tfopt.training.fine_tuner import FineTuner
from tfopt.training.fine_tuning_inputs import WITH_TEACHER
from tfopt.training.weight_changes import loaded_reproducibly, save_and_compare
from tfopt.value_types import JsonObject

EXAMPLES = 256  # for the importance of channels
COMPARED = 16  # records on which the smaller model is verified
MAX_LINES = 12  # of the table


def prune_channels(
    model: KerasModel,
    examples: Examples | None,
    module: Path | None,
    target: Path,
    settings: Settings,
    teacher: Model | None = None,
) -> JsonObject:
    """Write the smaller model into the staging folder ``target`` and return the facts for its model card.

    Raises:
        ComponentError: If the model was pruned, clustered or quantized before, no channel can be removed, the sparsity
            cannot be reached, the module and the model do not fit, or the outputs of the smaller model differ from
            those of its parent with these channels set to zero.
    """
    with loaded_reproducibly(model, module, settings.seed) as (parent, user):
        check_not_shrunk(list(kernels_of(parent, NAMES)))
        tuner = FineTuner(parent, model, user, examples, target, settings, settings.seed) if user and examples else None
        inputs, _ = draw_inputs(examples, input_specs(parent), records=EXAMPLES, seen="eval")  # importance: ``train``
        losses: Losses = ()
        if settings.importance == "taylor" and tuner:
            losses = labeled_losses(parent, tuner.sources["train"], count=EXAMPLES, seed=settings.seed)
        elif settings.importance == "taylor":
            losses = label_free_losses(parent, inputs)
        meter = stored = None
        if settings.measure == "latency":
            meter = LatencyMeter(parent, settings.latency_runtime, settings.latency_batch_size)
            stored = _open_measurements(parent, settings)
        removal = remove_channels(parent, settings, losses=losses, meter=meter, stored=stored)
        surgery = _verify(removal, inputs)
        smaller = removal.model
        tuned: JsonObject = {"reason": "no module: pruned after training, without fine-tuning"}
        taught: JsonObject = {}
        if tuner:
            before = tuner.evaluate(parent)
            with tuner.distillation(teacher, parent, settings) as taught:
                smaller, tuned = fine_tune(tuner.compile(smaller), [], tuner, settings)
            tuned |= {"parent": before}
    verified = save_and_compare(smaller, target, model, parent, examples, fix=FIX)
    if removal.table:
        (target / PAGE).write_text(render_html(removal.table, model.name), encoding="utf-8")
    layers = describe_channels(kernels_of(parent, NAMES), kernels_of(smaller, NAMES))
    for line in [*_table(removal.report), layers["speed"], parity.describe_parity(verified["outputs"])]:
        logging.getLogger(__name__).info("%s", line)
    return {
        "name": f"pruned {1 - removal.ratio:.0%} of {settings.measure}{WITH_TEACHER if teacher else ''}",
        "report": removal.report | layers,
        "fine_tuned": tuned,
        "verified": verified | {"surgery": surgery},
        **taught,
    }


def _open_measurements(parent: Layer, settings: Settings) -> StoredMeasurements:
    """Return the latencies that were measured before for the same layers, whatever their weights, on such a machine."""
    layers = json.dumps(parent.get_config(), default=str)
    machine = cpu_facts().get("model"), sorted(installed_versions(RUNTIME_PACKAGES).items())
    identity = layers, settings.latency_runtime, settings.latency_batch_size, machine
    return StoredMeasurements(settings.checkpoints, identity)


@parity.without_tensor_float_32()
def _verify(removal: Removal, inputs: Batch) -> dict[str, float]:
    """Compare the outputs of the smaller model with its parent's with the removed channels set to zero."""
    import tensorflow as tf

    records = {name: tf.constant(array[:COMPARED]) for name, array in inputs.items()}

    def outputs_of(model: Layer) -> list[Any]:
        results = model(keras_models.pack_inputs(model, records), training=False)
        return [np.asarray(result, np.float64) for result in tf.nest.flatten(results)]

    is_half_precision = any(
        "16" in str(getattr(layer, "compute_dtype", "")) for layer in removal.model._flatten_layers()
    )
    tolerance = 5e-2 if is_half_precision else 1e-4  # of the largest output: terms are added in another order
    facts = {"difference": 0.0, "records": float(len(next(iter(records.values()))))}
    for before, after in zip(outputs_of(removal.parent), outputs_of(removal.model), strict=True):
        difference = float(np.abs(before - after).max(initial=0) / max(np.abs(before).max(initial=0), 1e-12))
        facts["difference"] = max(facts["difference"], difference)
        if not difference <= tolerance:
            received = f"the smaller model differs by {difference:.2g} from its parent with these channels set to zero"
            fix = "report this as a bug, with the model: its channels were not followed correctly"
            raise ComponentError(received, f"at most {tolerance:g}", fix)
    return facts


def _table(report: Mapping[str, Any]) -> list[str]:
    groups = report["groups"][:MAX_LINES]
    lines = [
        f"  {group['members'][0]:24}  {group['before']:5} -> {group['after']:5} channels"
        + (f"  unchanged: {group['frozen']}" if "frozen" in group else "")
        for group in groups
    ]
    more = len(report["groups"]) - len(groups)
    return [report["summary"], *lines, *([f"  {more} more: see report in the model card"] if more > 0 else [])]
