"""The whole of the work: mask, fine-tune where there is a module, write, and say what it cost."""

import logging
from pathlib import Path
from typing import Any

from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, KerasModel
from tfopt.components.prune import report
from tfopt.components.prune.fine_tuning import fine_tune
from tfopt.components.prune.kernels import check_untouched, find_kernels
from tfopt.components.prune.masked_training import Masks
from tfopt.components.prune.request import Request
from tfopt.keras_models.quantization_aware import check_not_quantized
from tfopt.measurement import parity
from tfopt.measurement.parity import measure_parity
from tfopt.runtimes.keras_outputs import output_names
from tfopt.training.determinism import reproducible, set_seeds
from tfopt.training.fine_tuner import FineTuner
from tfopt.training.user_module import UserModule

FIX = "lower the sparsity, or fine-tune: pass module=PATH and examples=PATH"

log = logging.getLogger("tfopt")


def prune_weights(
    model: KerasModel, examples: Examples | None, module: Path | None, target: Path, request: Request
) -> dict[str, Any]:
    """Write the pruned model into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: When it was pruned, clustered or quantized before, nothing can be pruned so, the module and
            the model do not fit, or the model no longer tells its inputs apart.
    """
    check_not_quantized(model)
    with reproducible(request.seed):
        user = UserModule(module) if module else None  # first: it registers the layers of its own
        set_seeds(request.seed)
        keras_model = keras_models.load(model)
        keras_models.check_weights(keras_model)
        kernels = find_kernels(keras_model, request.pattern, request.layers)
        check_untouched(kernels)
        before = [kernel.gzipped for kernel in kernels]
        if user and examples:
            rounds = FineTuner(keras_model, model, user, examples, target, request)
            keras_model, tuned = fine_tune(keras_model, kernels, rounds, request)
        else:
            Masks(kernels, request.pattern).draw(request.sparsity)
            tuned = {"reason": "no module: pruned after training, without fine-tuning"}
    with runtimes.load(model) as parent:
        keras_models.save(keras_model, target, output_names(model, parent, keras_model))
        verified = measure_parity(parent, KerasModel(target), examples, fix=FIX)
    found = report.describe(kernels, before)
    for line in [*report.table(found), parity.describe_parity(verified["outputs"])]:
        log.info("%s", line)
    return {"name": _name(request), "report": found, "fine_tuned": tuned, "verified": verified}


def _name(request: Request) -> str:
    pattern = request.pattern
    if pattern.name == "n_m":
        return f"pruned {pattern.ratio[0]}:{pattern.ratio[1]}"
    shape = f" in {pattern.block[0]}x{pattern.block[1]} blocks" if pattern.name == "block" else ""
    return f"pruned {request.sparsity:.0%}{shape}"
