"""Train the user's model: build it, check the examples, train, and save a model whose two forms agree."""

import logging
import math
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from tfopt import keras_models, runtimes
from tfopt.artifacts import Examples, KerasModel, Model
from tfopt.artifacts.model_card import TRAINED_ON, ParityFacts
from tfopt.components.train.auto_settings import choose_auto_settings, choose_batch_size
from tfopt.components.train.class_weights import compute_class_weights
from tfopt.components.train.layer_placement import LayerPlacement
from tfopt.components.train.parameters import Settings
from tfopt.components.train.warm_start import find_loss_increase, load_start_weights, module_digest, pass_through
from tfopt.data.batches import read_batches
from tfopt.data.feature_schema import MANIFEST, read_manifest, rounding_notes
from tfopt.data.record_hashes import trained_on_facts
from tfopt.data.sample_inputs import FEWEST_COMPARED, compared_records
from tfopt.errors import ComponentError
from tfopt.measurement import parity
from tfopt.runtimes import keras as keras_runtime
from tfopt.storage.staging import link_tree
from tfopt.training import user_module
from tfopt.training.checkpointing.checkpoints import Checkpoints, savable_generators
from tfopt.training.compute.device_memory import configure_gpu_memory
from tfopt.training.compute.distribution import TPU, build_with_whole_batch, create_strategy, scale_learning_rate
from tfopt.training.compute.model_parallel import placed, recorded_variables
from tfopt.training.compute.precision import AS_BUILT, FLOAT32, MULTIPLE, unaligned_layers, xla_clusters
from tfopt.training.compute.rematerialization import rematerialized
from tfopt.training.datasets.dataset import Source
from tfopt.training.datasets.input_kinds import check_padding
from tfopt.training.determinism import reproducible, set_seeds
from tfopt.training.fit_loop import History, evaluate_model, fit_model
from tfopt.training.model_assembly import assemble
from tfopt.training.teacher_predictions import prepare_distillation
from tfopt.training.training_setup import MODEL_SETTINGS, prepare_training
from tfopt.value_types import JsonObject

TOLERANCE = 1e-5  # of the output's range: both forms compute the same graph
COMPARED_RECORDS = 512

log = logging.getLogger(__name__)


def train_module(
    examples: Examples,
    module: Path,
    trained: KerasModel,
    settings: Settings,
    teacher: Model | None,
    start: KerasModel | None,
    changes: Sequence[str],
) -> None:
    """Train, and write the model, its history and its logs into ``trained``.

    If there are no ``changes`` since the start was trained, and its loss on the examples is not higher, it is passed
    through without training. The other arguments are the component's.
    """
    checkpoints = _open_checkpoints(examples, module, settings, {"teacher": teacher, "start": start})
    chosen = _choose_settings(settings, examples, module)
    configure_gpu_memory(chosen.gpu_memory_mb)
    strategy = create_strategy(chosen.distribution)
    with (
        reproducible(chosen.seed, deterministic=chosen.deterministic),
        savable_generators(checkpoints is not None),
        xla_clusters(chosen.jit_compile),
        tempfile.TemporaryDirectory(prefix="tfopt-cache-") as cache,
    ):
        training = Training(examples, module, chosen, strategy)
        start_facts = load_start_weights(start, training.setup.parts, module) if start else {}
        training.read_examples()
        before: dict[str, float] = {}
        if start and not strategy:
            with training.placed():
                metrics = evaluate_model(training.setup.parts.model, training.sources)
            before = {name: value for name, value in metrics.items() if math.isfinite(value)}
            start_facts["metrics"] = before
        if start:
            reasons = [*changes, *find_loss_increase(start, before, chosen.min_change)]
            if not reasons:
                pass_through(start, trained)
                if checkpoints:
                    checkpoints.remove()
                return
            if chosen.min_change:
                log.info("training, because of changes: %s", ", ".join(reasons))
        teacher_facts = training.fit(trained.path, Path(cache), checkpoints, teacher)
        trained.metadata["metrics"] = training.finish(before)
    trained.metadata |= {**teacher_facts, **({"start": start_facts} if start_facts else {})}
    training.save(trained)
    cards = [model.card for model in (start, teacher) if model]
    trained.metadata[TRAINED_ON] = trained_on_facts(training.setup.files["train"], settings.label, cards)
    if not settings.batch_size:
        trained.metadata["batch_size"] = chosen.batch_size
    if checkpoints:
        checkpoints.remove()


class Training:
    """One training of the user's module; its ``setup`` has the model that is trained and the one that is saved."""

    sources: dict[str, Source]  # of each split, from `read_examples`
    history: History  # of `fit`

    def __init__(self, examples: Examples, module: Path, settings: Settings, strategy: Any) -> None:
        """Run the module and build its model.

        The settings have no ``auto``, and a batch size; without a distribution strategy, one device trains. Raise
        ComponentError if the module raises, or its model and the examples do not fit.
        """
        self.examples, self.settings, self.strategy = examples, settings, strategy
        self.replicas = strategy.num_replicas_in_sync if strategy else 1
        self.user = user_module.UserModule(module)
        with strategy.scope() if strategy else nullcontext():
            modes = {name: getattr(settings, name) for name in MODEL_SETTINGS}
            build = partial(prepare_training, self.user, examples, **modes, splits=("train", "eval"))
            sizes = settings.model_parallel, settings.batch_size, settings.gpu_memory_mb
            self.layers = LayerPlacement(build, *sizes) if settings.model_parallel > 1 else None
            self.setup = self.layers.setup if self.layers else build()
            model = self.setup.parts.model
            _accumulate_gradients(model, self.user, settings.gradient_accumulation)
            self.learning_rate = scale_learning_rate(model, self.replicas, settings.learning_rate_scaling)
        unaligned = unaligned_layers(model) + [f"batch_size {settings.batch_size}"] * (
            settings.batch_size % MULTIPLE > 0
        )
        if unaligned and settings.precision.startswith("mixed"):
            names = ", ".join(unaligned[:8])
            log.warning("sizes that are not multiples of 8, with which %s is fastest: %s", settings.precision, names)

    def placed(self) -> AbstractContextManager[None]:
        """Return the context in which the layers compute on their devices."""
        return placed(self.setup.parts.model, self.layers.placement if self.layers else None)

    def read_examples(self) -> None:
        """Compute class weights, and check the splits; raise ComponentError if the model does not fit them."""
        setup = self.setup
        self.class_weight = compute_class_weights(self.settings.class_weights, setup)
        self.sources = setup.read_sources(self.layers.counts if self.layers else None)
        check_padding(setup.parts.saved, self.sources["train"], self.user)
        self.notes = rounding_notes(read_manifest(self.examples.path), setup.stored, setup.parts.inputs)
        for note in self.notes:
            log.warning("%s", note)

    def fit(self, folder: Path, cache: Path, checkpoints: Checkpoints | None, teacher: Model | None) -> JsonObject:
        """Train the model, with a teacher by distillation; return the facts about the teacher for the model card.

        ``history.json`` and ``logs/`` are written into the folder; the cache is for examples and the teacher's outputs.
        Raise ComponentError if the loss is not finite, the model raises, or teacher and model do not fit.
        """
        model, settings = self.setup.parts.model, self.settings
        for split, source in self.sources.items():
            (cache / split).mkdir()
            self.sources[split] = replace(source, settings=settings, folder=cache / split, replicas=self.replicas)
        distillation: AbstractContextManager[None] = nullcontext()
        facts: JsonObject = {}
        if teacher:
            self.sources["train"], distill, facts = prepare_distillation(
                *(teacher, model, self.sources["train"], cache / "answers", self.user.path),
                temperature=settings.temperature,
                alpha=settings.alpha,
                class_weight=self.class_weight,
            )
            distillation = distill(model)
        if self.strategy:
            build_with_whole_batch(self.strategy, model, self.sources["train"].first_batch(settings.batch_size))
        sizes = self.setup.parts.saved.count_params(), self.sources["train"].count, self.sources["eval"].count
        log.info("training %s: %d parameters, %d examples, %d for validation", model.name, *sizes)
        with distillation, rematerialized(model, settings.rematerialize), self.placed():
            self.history = fit_model(
                model,
                self.user,
                self.sources,
                folder,
                epochs=settings.epochs,
                batch_size=settings.batch_size * self.replicas,
                patience=settings.patience,
                seed=settings.seed,
                checkpoints=checkpoints,
                class_weight=None if teacher else self.class_weight,  # the distillation loss applies the weights
                timed=settings.jit_compile not in (AS_BUILT, "off"),
            )
        return facts

    def finish(self, start_metrics: Mapping[str, float]) -> Mapping[str, float | None]:
        """Convert the model to float32 on one device, if it is not, and return its validation metrics."""
        best = self.history["epochs"][self.history["best_epoch"] - 1]
        before = start_metrics.get("val_loss", math.inf)
        loss = best["val_loss"]
        if loss is not None and loss > before:
            log.warning("no epoch was better than the start, whose val_loss is %.4g", before)
        is_mixed = self.settings.precision.startswith("mixed")
        if not is_mixed and not self.strategy:
            return {name: value for name, value in best.items() if name.startswith("val_")}
        trained = self.setup.parts
        keras_models.library(trained.model).backend.clear_session()  # otherwise its layers would get other names
        set_seeds(self.settings.seed)
        precision = FLOAT32 if is_mixed else self.settings.precision
        with recorded_variables() if self.layers else nullcontext():  # in main memory
            parts = assemble(self.user, self.setup.stored, self.examples, self.settings.label, precision)
        parts.saved.set_weights(trained.saved.get_weights())
        self.setup = replace(self.setup, parts=parts)
        counts = {split: source.count for split, source in self.sources.items()}
        return evaluate_model(parts.model, self.setup.read_sources(counts))

    def save(self, trained: KerasModel) -> None:
        """Save the model in two forms, compare them, and add the facts about the training to the model card.

        Raises:
            ComponentError: If Keras cannot save the model, or the outputs of the two forms differ.
        """
        saved, settings = self.setup.parts.saved, self.settings
        keras_models.save(saved, trained.path)
        if (self.examples.path / MANIFEST).is_file():
            link_tree(self.examples.path / MANIFEST, trained.path / MANIFEST)  # for the next run to compare with
        own_layers = _own_layers(saved)
        if own_layers:
            names = ", ".join(own_layers)
            log.warning("%s: layers of your own; steps that change the Keras model cannot load them", names)
        modes = {"precision": settings.precision, "jit_compile": settings.jit_compile}
        trained.metadata |= {
            "name": "trained",
            "module": module_digest(self.user.path),
            "best_epoch": self.history["best_epoch"],
            "epochs": len(self.history["epochs"]),
            "own_layers": own_layers,
            "examples": {split: source.count for split, source in self.sources.items()},
            "verified": _compare_forms(trained, self.setup.files["eval"]),
            **({"notes": self.notes} if self.notes else {}),
            **{name: value for name, value in modes.items() if value != AS_BUILT},
        }
        if self.layers:
            trained.metadata["model_parallel"] = [asdict(part) for part in self.layers.parts]
        if self.strategy:
            facts = {"kind": settings.distribution, "replicas": self.replicas}
            facts["batch_size"] = settings.batch_size * self.replicas
            learning_rate = {"learning_rate": self.learning_rate} if self.learning_rate else {}
            trained.metadata["distribution"] = facts | learning_rate


def _open_checkpoints(
    examples: Examples, module: Path, settings: Settings, models: Mapping[str, Model | None]
) -> Checkpoints | None:
    """Return the checkpoints of the training with this identity; None if none are requested."""
    if not settings.checkpoints:
        return None
    digests = {"examples": examples.digest, "module": module_digest(module)}
    digests |= {name: model.digest for name, model in models.items() if model}
    versions = {name: version(name) for name in ("tensorflow", "keras", "tf_keras")}
    return Checkpoints(settings.checkpoints, {**digests, **settings.identity(), **versions}, settings.checkpoint_s)


def _choose_settings(settings: Settings, examples: Examples, module: Path) -> Settings:
    """Return the settings with a batch size, a precision and an XLA mode chosen on this machine."""
    settings = choose_auto_settings(choose_batch_size(settings, examples, module), examples, module)
    if settings.distribution == TPU and settings.precision == AS_BUILT:
        return replace(settings, precision="mixed_bfloat16")  # the native precision of a TPU
    return settings


def _accumulate_gradients(model: Any, user: user_module.UserModule, batches: int) -> None:
    """Set the number of batches for one update, before the optimizer has variables."""
    if batches == 1:
        return
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    if keras_models.is_keras_2(model) or optimizer.built or optimizer.gradient_accumulation_steps:
        received = f"gradient_accumulation={batches} for the optimizer {optimizer.name} of {user.path}"
        expected = "a new Keras 3 optimizer that does not accumulate yet"
        raise ComponentError(received, expected, "use Keras 3 in the module, or leave gradient_accumulation at 1")
    optimizer.gradient_accumulation_steps = batches


def _own_layers(model: Any) -> list[str]:
    """Return the layer classes that the module defines; other processes do not have them."""
    layers = list(model.layers)
    for layer in layers:
        layers.extend(getattr(layer, "layers", ()))
    return sorted({type(layer).__name__ for layer in layers if type(layer).__module__ == user_module.NAME})


def _compare_forms(trained: KerasModel, files: list[Path]) -> dict[str, ParityFacts]:
    with (
        keras_runtime.load(trained, signature="", threads=None) as keras_form,
        runtimes.load(KerasModel(trained.path)) as saved_model,
    ):
        count = compared_records(keras_form.inputs, COMPARED_RECORDS)
        batches = islice(read_batches(files, keras_form.inputs, batch_size=FEWEST_COMPARED), count // FEWEST_COMPARED)
        differences = parity.compare(keras_form, saved_model, batches)
    for name, difference in differences.items():
        if difference.relative_error > TOLERANCE:
            received = f"output {name!r}: the SavedModel and the Keras form differ by {difference.max_abs_error:g}"
            expected = f"at most {TOLERANCE:g} of its range {difference.output_range:g}"
            raise ComponentError(received, expected, "look for layers that draw random numbers outside of training")
    return {name: difference.facts() for name, difference in differences.items()}
