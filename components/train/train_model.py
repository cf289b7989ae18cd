"""The work of `train`: assemble, look at the data, learn, and save what was checked."""

import logging
import math
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from tfopt import runtimes
from tfopt.artifacts import Examples, KerasModel, Model
from tfopt.artifacts.staging import link_tree
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.train.auto_settings import choose
from tfopt.components.train.class_weights import class_weights
from tfopt.components.train.data_changes import digest
from tfopt.components.train.largest_batch import choose_batch_size
from tfopt.components.train.settings import Settings
from tfopt.components.train.teaching import taught
from tfopt.components.train.warm_start import hand_on, start_from, worse
from tfopt.data.batches import read_batches
from tfopt.data.feature_schema import MANIFEST, stored_features
from tfopt.errors import ComponentError
from tfopt.keras_models import io as keras_models
from tfopt.measurement import parity
from tfopt.runtimes import keras as keras_runtime
from tfopt.training import user_module
from tfopt.training.checkpoints import Checkpoints
from tfopt.training.compile_like_module import scores
from tfopt.training.dataset import Reading
from tfopt.training.determinism import set_seeds, reproducible
from tfopt.training.device_memory import take_as_needed
from tfopt.training.distribution import TPU, begin, build_whole, scale_learning_rate
from tfopt.training.fit_loop import fit_model
from tfopt.training.input_kinds import check_filling
from tfopt.training.model_assembly import Assembly, assemble
from tfopt.training.precision import AS_BUILT, FLOAT32, odd_sizes
from tfopt.training.rematerialization import recomputed
from tfopt.training.split_datasets import read_sources
from tfopt.training.targets import check_label
from tfopt.training.training_state import generators_kept
from tfopt.training.user_module import UserModule
from tfopt.training.xla import clusters, compile_steps

TOLERANCE = 1e-5  # of the output's range: the same graph, computed twice
COMPARED = 512  # records

log = logging.getLogger("tfopt")


def train_module(
    examples: Examples,
    module: Path,
    trained: KerasModel,
    asked: Settings,
    teacher: Model | None = None,
    start: KerasModel | None = None,
    changed: Sequence[str] = ("asked for",),
) -> None:
    """Train, and write the model, its history and its logs into ``trained``. The arguments are the component's.

    Where nothing ``changed`` since the start was trained, and it is as good on today's examples, it is handed on.
    """
    files = {split: examples.split(split) for split in ("train", "eval")}
    kept = None
    if asked.checkpoints:
        about = _deciding(examples, module, asked, {"teacher": teacher, "start": start})
        kept = Checkpoints(asked.checkpoints, about, asked.checkpoint_s)
    settings = choose(choose_batch_size(asked, examples, module), examples, module)
    if settings.distribution == TPU and settings.precision == AS_BUILT:
        settings = replace(settings, precision="mixed_bfloat16")  # what a TPU multiplies in
    take_as_needed(settings.gpu_memory_mb)
    spread = begin(settings.distribution)
    replicas = spread.num_replicas_in_sync if spread else 1
    with (
        reproducible(settings.seed, deterministic=settings.deterministic),
        generators_kept(kept is not None),
        clusters(settings.jit_compile),
        tempfile.TemporaryDirectory(prefix="tfopt-cache-") as scratch,
    ):
        stored = stored_features(files["train"])
        check_label(settings.label, stored, str(examples.path))
        user = UserModule(module)
        set_seeds(settings.seed)
        with spread.scope() if spread else nullcontext():
            parts = assemble(user, stored, examples, settings.label, settings.precision)
            _tune(parts.model, user, settings)
            rate = scale_learning_rate(parts.model, replicas, settings.learning_rate_scaling)
        begun = start_from(start, parts, module) if start else {}
        weights = class_weights(settings.class_weights, parts.model, files["train"], stored, settings.label)
        sources = read_sources(files, parts.model, parts.preprocessing, parts.inputs, stored, settings.label)
        check_filling(parts.saved, sources["train"], user)
        if begun and not spread:
            begun["metrics"] = _finite(scores(parts.model, sources))
        if start and not (why := [*changed, *worse(start, begun.get("metrics", {}), settings.min_change)]):
            hand_on(start, trained)
            if kept:
                kept.remove()
            return
        if start and settings.min_change:
            log.info("training, since changed: %s", ", ".join(why))
        sources = {
            split: replace(source, reading=_reading(settings, Path(scratch, split), replicas))
            for split, source in sources.items()
        }
        known = parts.model, sources["train"], Path(scratch, "answers"), module, settings, weights
        sources["train"], lesson, facts = taught(teacher, *known)
        if spread:
            build_whole(spread, parts.model, sources["train"].one(settings.batch_size))
        sizes = parts.saved.count_params(), sources["train"].count, sources["eval"].count
        log.info("training %s: %d parameters, %d examples, %d to validate", parts.model.name, *sizes)
        with lesson, recomputed(parts.model, settings.rematerialize):
            history = fit_model(
                parts.model,
                user,
                sources,
                trained.path,
                epochs=settings.epochs,
                batch_size=settings.batch_size * replicas,
                patience=settings.patience,
                seed=settings.seed,
                checkpoints=kept,
                class_weight=None if teacher else weights,  # the lesson weighs answers too
                timed=settings.jit_compile not in (AS_BUILT, "off"),
            )
        best = history["epochs"][history["best_epoch"] - 1]
        before = begun.get("metrics", {}).get("val_loss", math.inf)
        if best["val_loss"] > before:
            log.warning("no epoch was better than the start, whose val_loss is %.4g", before)
        metrics = {name: value for name, value in best.items() if name.startswith("val_")}
        if settings.precision.startswith("mixed") or spread:
            learnt = parts
            parts = _plain(learnt, user, stored, examples, settings)
            read = read_sources(files, parts.model, parts.preprocessing, parts.inputs, stored, settings.label)
            metrics = scores(parts.model, read)
    keras_models.save(parts.saved, trained.path)
    layers = _own_layers(parts.saved)
    if layers:
        log.warning("%s: your own layers; steps that change the Keras form can not load them", ", ".join(layers))
    if (examples.path / MANIFEST).is_file():
        link_tree(examples.path / MANIFEST, trained.path / MANIFEST)  # what it learnt from, for the next run to compare
    trained.metadata |= {
        "name": "trained",
        "module": digest(module),
        "best_epoch": history["best_epoch"],
        "epochs": len(history["epochs"]),
        "metrics": metrics,
        "own_layers": layers,
        "examples": {split: source.count for split, source in sources.items()},
        "verified": _verify(trained, files["eval"]),
        **facts,
        **({"start": begun} if begun else {}),
    }
    chosen = {"precision": settings.precision, "jit_compile": settings.jit_compile}
    trained.metadata |= {name: value for name, value in chosen.items() if value != AS_BUILT}
    if spread:
        batch = settings.batch_size * replicas
        trained.metadata["distribution"] = {"kind": settings.distribution, "replicas": replicas, "batch_size": batch}
        trained.metadata["distribution"] |= {"learning_rate": rate} if rate else {}
    if not asked.batch_size:
        trained.metadata["batch_size"] = settings.batch_size
    if kept:
        kept.remove()


def _finite(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def _tune(model: Any, user: UserModule, settings: Settings) -> None:
    """Set the compiled model up as asked, before its optimizer has variables."""
    compile_steps(model, settings.jit_compile)
    odd = odd_sizes(model) if settings.precision.startswith("mixed") else []
    if odd:
        log.warning("no multiples of 8, which %s is fastest with: %s", settings.precision, ", ".join(odd[:8]))
    if settings.gradient_accumulation == 1:
        return
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    if keras_models.is_keras_2(model) or optimizer.built or optimizer.gradient_accumulation_steps:
        raise ComponentError(
            f"gradient_accumulation={settings.gradient_accumulation} for the optimizer {optimizer.name} of {user.path}",
            "a new Keras 3 optimizer that does not accumulate yet",
            "use Keras 3 in the module, or leave gradient_accumulation at 1",
        )
    optimizer.gradient_accumulation_steps = settings.gradient_accumulation


def _plain(
    learnt: Assembly, user: UserModule, stored: Mapping[str, TensorSpec], examples: Examples, settings: Settings
) -> Assembly:
    """The same model and weights, in float32 and on one device: what is served, and what other steps can change."""
    keras_models.library(learnt.model).backend.clear_session()  # or its layers would have other names
    set_seeds(settings.seed)
    precision = FLOAT32 if settings.precision.startswith("mixed") else settings.precision
    parts = assemble(user, stored, examples, settings.label, precision)
    parts.saved.set_weights(learnt.saved.get_weights())
    return parts


def _reading(settings: Settings, folder: Path, replicas: int) -> Reading:
    folder.mkdir()
    memory = settings.memory_mb << 20
    options = settings.threads, folder, settings.prefetch, replicas
    return Reading(settings.cache, settings.shuffle_buffer, memory, *options)


def _deciding(
    examples: Examples, module: Path, settings: Settings, models: Mapping[str, Model | None]
) -> dict[str, str]:
    """What decides the weights, by name."""
    versions = {name: version(name) for name in ("tensorflow", "keras", "tf_keras")}
    data = {"examples": examples.digest, "module": digest(module)}
    data |= {name: model.digest for name, model in models.items() if model}
    return {**data, **settings.deciding(), **versions}


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
