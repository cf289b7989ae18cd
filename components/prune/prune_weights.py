"""Prune the weights of a model, fine-tune it, save it, and compare it with its parent."""

import logging
from pathlib import Path

from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, KerasModel
from tfopt.components.prune import report
from tfopt.components.prune.kernels import check_not_shrunk, find_kernels
from tfopt.components.prune.masked_training import Masks, fine_tune
from tfopt.components.prune.parameters import Settings
from tfopt.keras_models.quantization_aware import check_not_quantized
from tfopt.measurement import parity
from tfopt.measurement.parity import measure_parity
from tfopt.runtimes.keras_parity import save_as_served
from tfopt.training.determinism import reproducible, set_seeds
from tfopt.training.fine_tuner import FineTuner
from tfopt.training.user_module import UserModule
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
    check_not_quantized(model)
    with reproducible(settings.seed):
        user = UserModule(module) if module else None  # first: it registers the user's own layers
        set_seeds(settings.seed)
        keras_model = keras_models.load(model)
        keras_models.check_weights(keras_model)
        kernels = find_kernels(keras_model, settings.parsed_pattern, settings.layers)
        check_not_shrunk(kernels)
        before = [kernel.gzipped for kernel in kernels]
        if user and examples:
            tuner = FineTuner(keras_model, model, user, examples, target, settings, settings.seed)
            keras_model, tuned = fine_tune(keras_model, kernels, tuner, settings)
        else:
            Masks(kernels, settings.parsed_pattern).update(settings.sparsity)
            tuned = {"reason": "no module: pruned after training, without fine-tuning"}
    with runtimes.load(model) as parent:
        save_as_served(keras_model, target, model, parent, keras_model)
        verified = measure_parity(parent, KerasModel(target), examples, fix=FIX)
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
