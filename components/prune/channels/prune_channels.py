"""The whole of the work for the pattern ``channel``: remove, verify, fine-tune where there is a module, and write."""

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, KerasModel
from tfopt.components.prune import report
from tfopt.components.prune.channel_latency import stopwatch
from tfopt.components.prune.channel_losses import compiled_losses, own_losses
from tfopt.components.prune.channels import selection as channels
from tfopt.components.prune.fine_tuning import fine_tune
from tfopt.components.prune.kernels import NAMES, check_untouched
from tfopt.components.prune.prune_weights import FIX
from tfopt.components.prune.request import Request
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import draw_inputs
from tfopt.errors import ComponentError
from tfopt.keras_models.kernels import kernels_of
from tfopt.keras_models.layer_graph import Layer
from tfopt.keras_models.quantization_aware import check_not_quantized
from tfopt.measurement import parity
from tfopt.measurement.parity import measure_parity
from tfopt.runtimes.keras_outputs import output_names
from tfopt.runtimes.saved_model import to_tensor_spec
from tfopt.training.determinism import reproducible, set_seeds
from tfopt.training.fine_tuner import FineTuner
from tfopt.training.user_module import UserModule

EXAMPLES, COMPARED, SHOWN = 256, 16, 12

log = logging.getLogger("tfopt")


def prune_channels(
    model: KerasModel, examples: Examples | None, module: Path | None, target: Path, request: Request
) -> dict[str, Any]:
    """Write the smaller model into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: When it was pruned, clustered or quantized before, no channel may go, the budget cannot be
            met, the module and the model do not fit, or the smaller model does not answer as its parent with those
            channels zeroed.
    """
    check_not_quantized(model)
    with reproducible(request.seed):
        user = UserModule(module) if module else None  # first: it registers the layers of its own
        set_seeds(request.seed)
        parent = keras_models.load(model)
        keras_models.check_weights(parent)
        check_untouched(list(kernels_of(parent, NAMES)))
        rounds = FineTuner(parent, model, user, examples, target, request) if user and examples else None
        inputs, _ = draw_inputs(examples, _specs(parent), records=EXAMPLES, seen="eval")  # ranked on what was learnt
        wanted = request.channels
        taylor = compiled_losses(parent, rounds.sources["train"], count=EXAMPLES, seed=request.seed) if rounds else None
        losses = (taylor or own_losses(parent, inputs)) if wanted.importance == "taylor" else ()
        timing = stopwatch(parent) if wanted.measure == "latency" else None
        removal = channels.remove_channels(parent, wanted, losses=losses, timing=timing)
        surgery = _verify(removal, inputs)
        smaller = removal.model
        tuned: dict[str, Any] = {"reason": "no module: pruned after training, without fine-tuning"}
        if rounds:
            before = rounds.evaluate(parent)
            smaller, tuned = fine_tune(rounds.compile(smaller), [], rounds, request)
            tuned |= {"parent": before}
    with runtimes.load(model) as served:
        keras_models.save(smaller, target, output_names(model, served, parent))
        verified = measure_parity(served, KerasModel(target), examples, fix=FIX)
    layers = report.describe_channels(kernels_of(parent, NAMES), kernels_of(smaller, NAMES))
    for line in [*_table(removal.report), layers["speed"], parity.describe_parity(verified["outputs"])]:
        log.info("%s", line)
    return {
        "name": f"pruned {1 - removal.report['ratio']:.0%} of {wanted.measure}",
        "report": removal.report | layers | {"asked": asdict(wanted)},
        "fine_tuned": tuned,
        "verified": verified | {"surgery": surgery},
    }


def _specs(model: Layer) -> dict[str, Any]:
    return {name: to_tensor_spec(spec) for name, spec in keras_models.serving_function(model)[1].items()}


def _verify(removal: channels.Removal, inputs: Batch) -> dict[str, float]:
    """The smaller model must answer as its parent does with zeros for all that went."""
    import tensorflow as tf

    few = {name: tf.constant(array[:COMPARED]) for name, array in inputs.items()}
    expected, received = (
        [
            np.asarray(result, np.float64)
            for result in tf.nest.flatten(model(keras_models.pack_inputs(model, few), training=False))
        ]
        for model in (removal.parent, removal.model)
    )
    found = {"difference": 0.0, "records": float(len(next(iter(few.values()))))}
    for before, after in zip(expected, received, strict=True):
        difference = float(np.abs(before - after).max(initial=0) / max(np.abs(before).max(initial=0), 1e-12))
        found["difference"] = max(found["difference"], difference)
        if not difference <= _tolerance(removal.model):
            raise ComponentError(
                f"the smaller model differs by {difference:.2g} from its parent with those channels zeroed",
                f"at most {_tolerance(removal.model):g}",
                "report this, with the model: its channels were not followed rightly",
            )
    return found


def _tolerance(model: Layer) -> float:
    """In parts of the largest answer: the sums are the same without their zeros, but not their order."""
    halves = any("16" in str(getattr(layer, "compute_dtype", "")) for layer in model._flatten_layers())
    return 5e-2 if halves else 1e-4


def _table(found: dict[str, Any]) -> list[str]:
    groups = found["groups"][:SHOWN]
    lines = [
        f"  {group['members'][0]:24}  {group['before']:5} -> {group['after']:5} channels"
        + (f"  stays: {group['frozen']}" if "frozen" in group else "")
        for group in groups
    ]
    more = len(found["groups"]) - len(groups)
    return [found["summary"], *lines, *([f"  {more} more: see report in the model card"] if more > 0 else [])]
