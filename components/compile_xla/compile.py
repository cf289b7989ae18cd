"""The whole of the work: refuse what XLA lacks, write, warm up, measure in a fresh process, compare."""

import logging
import tempfile
from pathlib import Path
from typing import Any

from tfopt import runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.components.compile_xla import cache
from tfopt.components.compile_xla import timing as measuring
from tfopt.components.compile_xla.saved_model import MAY, MUST, write_clustered, write_compiled
from tfopt.components.compile_xla.unsupported_ops import obstacles
from tfopt.components.compile_xla.wish import Wish
from tfopt.data.batches import Batch
from tfopt.data.sample_inputs import draw_inputs, split_batches
from tfopt.errors import ComponentError
from tfopt.graph import grappler
from tfopt.graph import pass_manager as passes
from tfopt.graph.comparison import DEFAULT, Comparison, worst
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.report import Report
from tfopt.graph.saved_model import opened
from tfopt.processes.subprocess_call import run_in_child
from tfopt.runtimes import environment
from tfopt.serving.saved_model_assets import copy_assets
from tfopt.serving.warm_up import write_requests

FIRST = ("strip_unused", "drop_control_edges", "drop_training_nodes", "fold_constants")  # less for XLA to compile
HEADINGS = ("Graph execution error", "Detected at node", "<stack traces")  # what TensorFlow says before the reason

log = logging.getLogger("tfopt")


def compile_model(model: SavedModel, target: Path, examples: Examples | None, wish: Wish) -> dict[str, Any]:
    """Write the compiled model into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: See `compile_xla`.
    """
    serving = target / "Format-Serving"
    with opened(model) as frozen:
        frozen = passes.optimize(grappler.run(frozen, ["debug_stripper"]), FIRST, Report())
        report = _write(frozen, serving, wish)
        comparison = Comparison(frozen.signatures, lambda key: runtimes.load(model, signature=key), examples)
    verified = _compared(comparison, target)
    where, off = worst(verified)
    if off > wish.tolerance:
        raise ComponentError(
            f"{where} differs by {off:.2g} of its range", f"at most {wish.tolerance:g}", "pass a larger tolerance"
        )
    batches = _batches(model, examples, wish.sizes)
    report |= _measured(model, target, batches, wish)
    missing = write_requests(serving, batches.values()) if wish.warm_up else "not asked for"
    copy_assets(model, serving)
    report["warm_up"] = missing or {"batch_sizes": list(batches)}
    facts = {
        "inputs": comparison.source,
        "tolerance": wish.tolerance,
        "skipped": comparison.skipped,
        "outputs": verified,
    }
    return {"name": "compiled", "report": report, "verified": facts}


def _write(frozen: Frozen, serving: Path, wish: Wish) -> dict[str, Any]:
    """Write the model, and say what is compiled of it; refuse what XLA lacks where all must be compiled."""
    found = obstacles(frozen)
    if not wish.whole:
        marked = write_clustered(frozen, serving)
        if not marked:
            raise _nothing()
        return {"mode": "clusters", "may_be_compiled": marked, "not_compiled": found}
    if found:
        listed = "; ".join(f"{op}: {why}" for op, why in found.items())
        raise ComponentError(
            f"operations that XLA cannot compile: {listed}",
            "a model whose every operation XLA can compile",
            "pass mode='clusters', which compiles the others, or serve a signature without them",
        )
    return {"mode": "whole", "static_signatures": write_compiled(frozen, serving, wish.sizes if wish.static else [])}


def _measured(model: SavedModel, target: Path, batches: dict[int, Batch], wish: Wish) -> dict[str, Any]:
    """The times of both, and what XLA compiled, as far as that is packed or might be nothing."""
    if wish.whole and not wish.cache:
        return {"speed": _speed(model, target, batches, {})}
    with tempfile.TemporaryDirectory(prefix="tfopt-") as scratch:
        folder = target / "Format-Serving" / cache.FOLDER if wish.cache else Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        with cache.writing(folder) as variables:
            speed = _speed(model, target, batches, variables)
        programs = len(list(folder.iterdir()))
    if not programs:
        raise _nothing()
    if not wish.cache:
        return {"speed": speed, "programs": programs}
    packed = cache.read_back(target, batches)
    for size, times in packed["from_cache"]["batches"].items():
        log.info("batch %s: from the cache %.1f s in place of compiling", size, times["compile_s"])
    return {"speed": speed, "programs": programs, "cache": packed}


def _nothing() -> ComponentError:
    return ComponentError(
        "XLA compiles nothing of this model",
        "operations that it can compile",
        "leave the model as it is; inspect_model lists its operations",
    )


def _compared(comparison: Comparison, target: Path) -> dict[str, Any]:
    """The parity of each output; running is when XLA compiles, and says what it cannot."""
    try:
        return comparison.errors(lambda key: runtimes.load(SavedModel(target), signature=key))
    except ComponentError:
        raise
    except Exception as error:
        said = [line.strip() for line in str(error).splitlines() if line.strip()]
        why = next((line for line in said if not line.startswith(HEADINGS)), said[0])
        raise ComponentError(
            f"XLA: {why[:300]}",
            "operations with sizes that are known when XLA compiles",
            "fix the sizes in the model that it names, or leave the model as it is",
        ) from error


def _batches(model: SavedModel, examples: Examples | None, sizes: list[int]) -> dict[int, Batch]:
    """Inputs of ``serving_default`` for each batch size; of the one size there is, where the model fixes it."""
    runtime = runtimes.load(model, signature=DEFAULT)
    given, _ = draw_inputs(examples, runtime.inputs, records=max(sizes))
    found = {}
    for size in sizes:
        batch = next(split_batches(given, runtime.inputs, size), None)
        if batch is not None:
            found[max((len(array) for array in batch.values() if array.ndim), default=1)] = batch
    return found


def _speed(model: SavedModel, target: Path, batches: dict[int, Batch], variables: dict[str, str]) -> dict[str, Any]:
    parent, ours = run_in_child(
        *(measuring.measure, [model, SavedModel(target)], batches),
        doing="running the compiled model and its parent",
        environment=environment.read_variables(model) | variables,
    )
    parent.pop("marked")
    if not ours.pop("marked"):
        raise ComponentError("nothing is marked for XLA after loading", f"{MUST} or {MAY}", "report this")
    for size, times in ours["batches"].items():
        log.info(
            "batch %s: compiled in %.1f s, then %.3g ms a call; the parent %.3g ms",
            *(size, times["compile_s"], 1e3 * times["call_s"], 1e3 * parent["batches"][size]["call_s"]),
        )
    return {"parent": parent, "compiled": ours}
