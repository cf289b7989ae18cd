"""Prune the weights of a model, fine-tune it, save it, and compare it with its baseline."""

import logging
from pathlib import Path

from tfopt.artifacts import Examples, KerasModel
from tfopt.components.prune import report
from tfopt.components.prune.kernels import check_not_shrunk, find_kernels
from tfopt.components.prune.masked_training import Masks, fine_tune
from tfopt.components.prune.parameters import Settings
from tfopt.measurement import parity
from tfopt.training.fine_tuner import FineTuner
from tfopt.training.weight_changes import loaded_reproducibly, save_and_compare
from tfopt.value_types import JsonObject

FIX = "lower the sparsity, or fine-tune: pass module=PATH and examples=PATH"

log = logging.getLogger(__name__)


def prune_weights(
    model: KerasModel, examples: Examples | None, module: Path | None, target: Path, settings: Settings
) -> JsonObject:
    """Write the pruned model into the staging folder ``target`` and return the facts for its model card.

    Raises:
        ComponentError: If the model was pruned, clustered or quantized before, no kernel fits the pattern, the module
            and the model do not fit, or the outputs of the pruned model no longer depend on its inputs.
    """
    with loaded_reproducibly(model, module, settings.seed) as (keras_model, user):
        kernels = find_kernels(keras_model, settings.parsed_pattern, settings.layers)
        check_not_shrunk(kernels)
        before = [kernel.gzipped for kernel in kernels]
        if user and examples:
            tuner = FineTuner(keras_model, model, user, examples, target, settings, settings.seed)
            keras_model, tuned = fine_tune(keras_model, kernels, tuner, settings)
        else:
            Masks(kernels, settings.parsed_pattern).update(settings.sparsity)
            tuned = {"reason": "no module: pruned after training, without fine-tuning"}
    verified = save_and_compare(keras_model, target, model, keras_model, examples, fix=FIX)
    facts = report.describe(kernels, before)
    for line in [*report.table(facts), parity.describe_parity(verified["outputs"])]:
        log.info("%s", line)
    return {"name": _name(settings), "report": facts, "fine_tuned": tuned, "verified": verified}


def _name(settings: Settings) -> str:
    pattern = settings.parsed_pattern
    if pattern.name == "n_m":
        return f"pruned {pattern.ratio[0]}:{pattern.ratio[1]}"
    shape = f" in {pattern.block[0]}x{pattern.block[1]} blocks" if pattern.name == "block" else ""
    return f"pruned {settings.sparsity:.0%}{shape}"
