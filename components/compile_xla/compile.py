"""Compilation of a model with XLA: check the ops, write the model, compare outputs, measure in a fresh process."""

import functools
import logging
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tfopt import runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.artifacts.model_card import Verification
from tfopt.components.compile_xla import cache
from tfopt.components.compile_xla.latency import CallTimes, measure_models
from tfopt.components.compile_xla.parameters import Settings
from tfopt.components.compile_xla.saved_model import write_clustered, write_compiled
from tfopt.components.compile_xla.sequence_buckets import check_lengths, draw_lengths
from tfopt.data.batches import Batch, resize_batch
from tfopt.data.sample_inputs import draw_inputs, split_batches
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.graph import grappler
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.law_order import NORMALIZING
from tfopt.graph.law_runner import optimize
from tfopt.graph.report import Report
from tfopt.graph_checks.comparison import Comparison, Loader, equal_signatures, tolerance_of, why_no_special_values
from tfopt.graph_checks.frozen_runtime import FrozenRuntime
from tfopt.graph_checks.special_values import EXTREMES, IEEE
from tfopt.processes.memory import free_graphs
from tfopt.processes.subprocess_call import run_in_child, run_isolated
from tfopt.runtimes import Runtime, environment
from tfopt.runtimes.saved_model import FunctionRuntime
from tfopt.saved_models.saved_model import opened
from tfopt.saved_models.signature_functions import share_signatures
from tfopt.saved_models.unsupported_ops import check_supported, find_unsupported_ops
from tfopt.serving.verified_write import copy_assets
from tfopt.serving.warm_up import write_requests
from tfopt.value_types import JsonObject

log = logging.getLogger(__name__)


def compile_model(model: SavedModel, target: Path, examples: Examples | None, settings: Settings) -> JsonObject:
    """Write the compiled model into the staging folder ``target`` and return the entries of its model card."""
    doing = "compiling with XLA"
    report, verified, batches = run_isolated(_write_verified, model, target, examples, settings, doing=doing)
    measured = _measure(model, target, batches, settings)
    return {"name": "compiled", "report": report | measured, "verified": verified}


@dataclass(frozen=True)
class _ParentResults:
    """Results on ordinary and on special values, inputs by batch size and by sequence length, and the allowed error."""

    comparison: Comparison
    special: Comparison
    batches: dict[int, Batch]
    lengths: dict[int, Batch]
    tolerance: float


def _write_verified(
    model: SavedModel, target: Path, examples: Examples | None, settings: Settings
) -> tuple[JsonObject, Verification, dict[int, Batch]]:
    """Write the compiled model and compare it with its parent; return its report, and inputs for a measurement."""
    serving = target / "Format-Serving"
    report, parent = _write(model, serving, examples, settings)
    free_graphs()  # of the graph and the parent, before the compiled model is loaded and its programs are compiled
    # Each load of the compiled model has copies of the weights, and compiles it again.
    child = runtimes.load(SavedModel(target), signature=parent.comparison.signatures[0])
    after = functools.cache(
        lambda key: (
            child.with_signature(key)
            if isinstance(child, FunctionRuntime)
            else runtimes.load(SavedModel(target), signature=key)
        )
    )
    after_freeing = _freeing(lambda key: nullcontext(after(key)))  # of what the compilation has left
    verified = _compare_outputs(parent.comparison, after_freeing, parent.tolerance)
    # XLA has other kernels: differences on special values are no reason to refuse the model.
    special = parent.special.special_differences(after_freeing, (IEEE, EXTREMES), parent.tolerance)
    for line in special:
        log.warning("on special values: %s", line)
    report["special_values"] = special or report["special_values"]
    if settings.buckets:
        error = check_lengths(model, SavedModel(target), settings.buckets, parent.tolerance)
        report["sequence_buckets"] = {"lengths": settings.buckets, "error": error}
    if settings.warm_up:
        padded = [resize_batch(parent.lengths[bucket], size) for bucket in settings.buckets for size in parent.batches]
        write_requests(serving, [*parent.batches.values(), *padded], model.signature)
    copy_assets(model, serving)
    report["warm_up"] = {"batch_sizes": list(parent.batches)} if settings.warm_up else "not requested"
    return report, verified, parent.batches


def _freeing(load: Loader) -> Loader:
    """Return a loader that first frees the graphs of signatures that were compared before."""

    def loader(key: str) -> AbstractContextManager[Runtime]:
        free_graphs()
        return load(key)

    return loader


def _write(
    model: SavedModel, serving: Path, examples: Examples | None, settings: Settings
) -> tuple[JsonObject, _ParentResults]:
    """Write the compiled model and run its parent; return the report and the parent's results."""
    with opened(model) as frozen:
        frozen = optimize(grappler.run(frozen, ["debug_stripper"]), NORMALIZING, Report())  # less to compile
        frozen = share_signatures(frozen, model.signature)
        equal = {} if settings.buckets else equal_signatures(frozen, model.signature)  # buckets are for one signature
        free_graphs()
        report = _write_model(frozen, serving, settings, model.signature)
        parent_loader = _freeing(lambda key: runtimes.load(model, signature=key))
        comparison = Comparison(frozen.signatures, parent_loader, examples, model.signature, equal=equal)
        no_special_values = why_no_special_values(frozen)
        special = Comparison(
            *(frozen.signatures, _freeing(lambda key: FrozenRuntime(frozen, key)), examples, model.signature),
            special=not no_special_values,
            equal=equal,
        )
        parent = comparison.recorded(model.signature)
        lengths = draw_lengths(parent, settings.buckets) if settings.warm_up and settings.buckets else {}
        batches = _draw_batches(parent, examples, settings.sizes)
        allowed = tolerance_of(frozen) if settings.tolerance is None else settings.tolerance
        report["special_values"] = no_special_values or "the same results"
        return report, _ParentResults(comparison, special, batches, lengths, allowed)


def _write_model(frozen: Frozen, serving: Path, settings: Settings, signature: str) -> JsonObject:
    """Write the model, and return which parts of it are compiled."""
    if settings.mode == "clusters":
        marked = write_clustered(frozen, serving)
        if not marked:
            raise _nothing_compiled()
        return {"mode": "clusters", "may_be_compiled": marked, "not_compiled": find_unsupported_ops(frozen)}
    fix = "pass mode='clusters', which compiles the others, or export the model without signatures that have them"
    check_supported(frozen, fix)
    static_sizes = settings.sizes if settings.static else []
    buckets = {signature: settings.buckets} if settings.buckets else {}
    return {"mode": "whole", "static_signatures": write_compiled(frozen, serving, static_sizes, buckets)}


def _measure(model: SavedModel, target: Path, batches: dict[int, Batch], settings: Settings) -> JsonObject:
    """Return the times of both models, the number of compiled programs, and the stored programs if requested."""
    if settings.mode == "whole" and not settings.cache:
        return {"speed": _measure_speed(model, target, batches, settings, {})}
    with tempfile.TemporaryDirectory(prefix="tfopt-") as scratch:
        folder = target / "Format-Serving" / cache.FOLDER if settings.cache else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        with cache.cache_environment(folder) as variables:
            speed = _measure_speed(model, target, batches, settings, variables, [folder])
        programs = len(list(folder.iterdir()))
    if not programs:
        raise _nothing_compiled()
    if not settings.cache:
        return {"speed": speed, "programs": programs}
    return {"speed": speed, "programs": programs, "cache": cache.measure_cache(target, batches)}


def _nothing_compiled() -> ComponentError:
    fix = "leave the model as it is; inspect_model lists its operations"
    return ComponentError("XLA compiles nothing of this model", "operations that it can compile", fix)


def _compare_outputs(comparison: Comparison, child: Loader, tolerance: float) -> Verification:
    """Compare the outputs with the parent's. The first run compiles, and raises XLA's errors."""
    try:
        fix = "pass a larger tolerance, or leave the model as it is"
        return comparison.verify(child, tolerance, what="compiled", fix=fix)
    except ComponentError:
        raise
    except Exception as error:
        received = f"XLA: {first_line(error)[:300]}"
        fix = "pass mode='clusters', or give what it names the same size in every step and call of the model"
        raise ComponentError(received, "operations with sizes that are known when XLA compiles", fix) from error


def _draw_batches(runtime: Runtime, examples: Examples | None, sizes: list[int]) -> dict[int, Batch]:
    """Return inputs of a signature by batch size; only for the model's own size if it is fixed."""
    inputs, _ = draw_inputs(examples, runtime.inputs, records=max(sizes))
    batches = {}
    for size in sizes:
        batch = next(split_batches(inputs, runtime.inputs, size), None)
        if batch is not None:
            batches[max((len(array) for array in batch.values() if array.ndim), default=1)] = batch
    return batches


def _measure_speed(
    model: SavedModel,
    target: Path,
    batches: dict[int, Batch],
    settings: Settings,
    variables: dict[str, str],
    writes: Sequence[Path] = (),
) -> JsonObject:
    parent, compiled = run_in_child(
        *(measure_models, [model, SavedModel(target)], batches),
        doing="running the compiled model and its parent",
        environment=environment.read_variables(model) | variables,
        writes=writes,
    )
    for size, times in compiled["batches"].items():
        log.info(
            "batch %s: compiled in %.1f s, then %.3g ms a call; the parent %.3g ms",
            *(size, times["compile_s"], 1e3 * times["call_s"], 1e3 * parent["batches"][size]["call_s"]),
        )
    if settings.max_slowdown is not None:
        _check_slowdown(parent["batches"], compiled["batches"], settings.max_slowdown)
    return {"parent": parent, "compiled": compiled}


def _check_slowdown(parent: Mapping[int, CallTimes], compiled: Mapping[int, CallTimes], limit: float) -> None:
    """Raise ComponentError if calls of every batch size take more than so many times as long as the parent's."""
    ratios = {size: compiled[size]["call_s"] / parent[size]["call_s"] for size in compiled}
    if ratios and min(ratios.values()) > limit:
        texts = [f"{ratio:.3g} times at batch size {size}" for size, ratio in ratios.items()]
        received = f"a call of the compiled model takes longer than the parent's: {', '.join(texts)}"
        fix = "leave the model as it is: XLA has no fast form of its operations on this processor; or raise the limit"
        raise ComponentError(received, f"at most {limit:g} times (max_slowdown)", fix)
