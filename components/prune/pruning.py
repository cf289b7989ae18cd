"""The whole of the work: mask, fine-tune where there is a module, write, and say what it cost."""

import logging
from pathlib import Path
from typing import Any

from tfopt import keras_models, parity, runtimes
from tfopt.artifacts import Examples, KerasModel
from tfopt.components.prune import report
from tfopt.components.prune.fine_tuning import fine_tune
from tfopt.components.prune.kernels import find_kernels
from tfopt.components.prune.masking import Masks
from tfopt.components.prune.request import Request
from tfopt.errors import ComponentError
from tfopt.probes import cut, probe
from tfopt.served import output_names
from tfopt.training.reproducible import draw_from, reproducible
from tfopt.training.user_module import UserModule

RECORDS, BATCH = 512, 64

log = logging.getLogger("tfopt")


def prune_weights(
    model: KerasModel, examples: Examples | None, module: Path | None, target: Path, request: Request
) -> dict[str, Any]:
    """Write the pruned model into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: When nothing can be pruned so, the module and the model do not fit, or the model no longer
            tells its inputs apart.
    """
    with reproducible(request.seed):
        user = UserModule(module) if module else None  # first: it registers the layers of its own
        draw_from(request.seed)
        keras_model = keras_models.load(model)
        keras_models.check_weights(keras_model)
        kernels = find_kernels(keras_model, request.pattern, request.layers)
        before = report.gzipped_sizes(kernels)
        if user and examples:
            keras_model, tuned = fine_tune(keras_model, kernels, user, examples, target, request)
        else:
            Masks(kernels, request.pattern).draw(request.sparsity)
            tuned = {"reason": "no module: pruned after training, without fine-tuning"}
    with runtimes.load(model) as parent:
        keras_models.save(keras_model, target, output_names(model, parent, keras_model))
        cost = measure_cost(parent, KerasModel(target), examples)
    found = report.describe(kernels, before)
    for line in [*report.table(found), parity.in_words(cost["outputs"])]:
        log.info("%s", line)
    return {"name": _name(request), "report": found, "fine_tuned": tuned, "verified": cost}


def measure_cost(parent: runtimes.Runtime, child: KerasModel, examples: Examples | None) -> dict[str, Any]:
    """How far the answers moved, on examples that were not learnt where there are some."""
    inputs, source = probe(examples, parent.inputs, records=RECORDS)
    with runtimes.load(child) as pruned:
        found = parity.compare(parent, pruned, cut(inputs, parent.inputs, BATCH))
    for name, differences in found.items():
        if differences.constant:
            raise ComponentError(
                f"output {name!r}: the same answer for every input",
                "answers that vary as the parent's do",
                "lower the sparsity, or fine-tune: pass module=PATH and examples=PATH",
            )
    return {"inputs": source, "outputs": {name: differences.facts() for name, differences in found.items()}}


def _name(request: Request) -> str:
    pattern = request.pattern
    if pattern.name == "n_m":
        return f"pruned {pattern.ratio[0]}:{pattern.ratio[1]}"
    shape = f" in {pattern.block[0]}x{pattern.block[1]} blocks" if pattern.name == "block" else ""
    return f"pruned {request.sparsity:.0%}{shape}"
