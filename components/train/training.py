"""The work of `train`: assemble, look at the data, learn, and save what was checked."""

import logging
from itertools import islice
from pathlib import Path
from typing import Any

from tfopt import keras_models, parity, runtimes
from tfopt.artifacts import Examples, KerasModel
from tfopt.components.train.assembly import assemble
from tfopt.errors import ComponentError
from tfopt.examples import feature_specs, read_batches
from tfopt.runtimes import keras as keras_runtime
from tfopt.training import user_module
from tfopt.training.learning import learn
from tfopt.training.reproducible import draw_from, reproducible
from tfopt.training.sources import first_record, read_sources
from tfopt.training.targets import check_label
from tfopt.training.user_module import UserModule

TOLERANCE = 1e-5  # of the output's range: the same graph, computed twice
COMPARED = 512  # records

log = logging.getLogger("tfopt")


def train_module(
    examples: Examples,
    module: Path,
    trained: KerasModel,
    label: str,
    *,
    epochs: int,
    batch_size: int,
    patience: int,
    seed: int,
) -> None:
    """Train, and write the model, its history and its logs into ``trained``. The arguments are the component's."""
    files = {split: examples.split(split) for split in ("train", "eval")}
    with reproducible(seed):
        stored = feature_specs(first_record(files["train"]))
        check_label(label, stored, str(examples.path))
        user = UserModule(module)
        draw_from(seed)
        parts = assemble(user, stored, examples, label)
        sources = read_sources(files, parts.model, parts.preprocessing, parts.inputs, stored, label)
        sizes = parts.saved.count_params(), sources["train"].count, sources["eval"].count
        log.info("training %s: %d parameters, %d examples, %d to validate", parts.model.name, *sizes)
        history = learn(
            parts.model, user, sources, trained.path, epochs=epochs, batch_size=batch_size, patience=patience, seed=seed
        )
    keras_models.save(parts.saved, trained.path)
    own = _own_layers(parts.saved)
    if own:
        log.warning("%s: your own layers; steps that change the Keras form can not load them", ", ".join(own))
    best = history["epochs"][history["best_epoch"] - 1]
    trained.metadata |= {
        "name": "trained",
        "best_epoch": history["best_epoch"],
        "epochs": len(history["epochs"]),
        "metrics": {name: value for name, value in best.items() if name.startswith("val_")},
        "own_layers": own,
        "examples": {split: source.count for split, source in sources.items()},
        "verified": _verify(trained, files["eval"]),
    }


def _own_layers(model: Any) -> list[str]:
    """The classes which the module defines, and which no other process knows."""
    layers = list(model.layers)
    for layer in layers:
        layers.extend(getattr(layer, "layers", ()))
    return sorted({type(layer).__name__ for layer in layers if type(layer).__module__ == user_module.NAME})


def _verify(trained: KerasModel, files: list[Path]) -> dict[str, Any]:
    """Compare the two forms that were written, on real examples."""
    with (
        keras_runtime.load(trained, signature="", threads=None) as written,
        runtimes.load(KerasModel(trained.path)) as served,
    ):
        batches = islice(read_batches(files, written.inputs, batch_size=64), COMPARED // 64)
        found = parity.compare(written, served, batches)
    for name, differences in found.items():
        if differences.relative_error > TOLERANCE:
            raise ComponentError(
                f"output {name!r}: the SavedModel and the Keras form differ by {differences.max_abs_error:g}",
                f"at most {TOLERANCE:g} of its range {differences.output_range:g}",
                "look for layers that draw random numbers when they are not training",
            )
    return {name: differences.facts() for name, differences in found.items()}
