"""The whole of the work: refuse what XLA lacks, write, warm up, measure in a fresh process, compare."""

import logging
from pathlib import Path
from typing import Any

from tfopt import runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.child import run_in_child
from tfopt.components.compile_xla import measuring, warming
from tfopt.components.compile_xla.obstacles import obstacles
from tfopt.components.compile_xla.writing import write_compiled
from tfopt.errors import ComponentError
from tfopt.examples import Batch
from tfopt.graph import grappler, passes
from tfopt.graph.comparison import DEFAULT, Comparison, worst
from tfopt.graph.report import Report
from tfopt.graph.saved_model import opened
from tfopt.probes import cut, probe

FIRST = ("strip_unused", "drop_control_edges", "drop_training_nodes", "fold_constants")  # less for XLA to compile
SHOWN = 8
HEADINGS = ("Graph execution error", "Detected at node", "<stack traces")  # what TensorFlow says before the reason

log = logging.getLogger("tfopt")


def compile_model(
    model: SavedModel,
    target: Path,
    examples: Examples | None,
    sizes: list[int],
    static: bool,
    warm_up: bool,
    tolerance: float,
) -> dict[str, Any]:
    """Write the compiled model into the staging folder ``target`` and return what the model card should say.

    Raises:
        ComponentError: See `compile_xla`.
    """
    serving = target / "Format-Serving"
    with opened(model) as frozen:
        frozen = passes.optimize(grappler.run(frozen, ["debug_stripper"]), FIRST, Report())
        found = obstacles(frozen)
        if found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            listed = "; ".join(f"{op}: {why}" for op, why in list(found.items())[:SHOWN])
            raise ComponentError(
                f"operations that XLA cannot compile: {listed}{more}",
                "a model whose every operation XLA can compile",
                "serve a signature without them (preprocess text outside the model), or leave the model as it is",
            )
        added = write_compiled(frozen, serving, sizes if static else [])
        comparison = Comparison(frozen.signatures, lambda key: runtimes.load(model, signature=key), examples)
    verified = _compared(comparison, target)
    where, off = worst(verified)
    if off > tolerance:
        raise ComponentError(
            f"{where} differs by {off:.2g} of its range", f"at most {tolerance:g}", "pass a larger tolerance"
        )
    batches = _batches(model, examples, sizes)
    report: dict[str, Any] = {"static_signatures": added, "speed": _speed(model, target, batches)}
    report["warm_up"] = warming.write_requests(serving, batches) if warm_up else "not asked for"
    facts = {"inputs": comparison.source, "tolerance": tolerance, "skipped": comparison.skipped, "outputs": verified}
    return {"name": "compiled", "report": report, "verified": facts}


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
    given, _ = probe(examples, runtime.inputs, records=max(sizes))
    found = {}
    for size in sizes:
        batch = next(cut(given, runtime.inputs, size), None)
        if batch is not None:
            found[max(len(array) if array.ndim else 1 for array in batch.values())] = batch
    return found


def _speed(model: SavedModel, target: Path, batches: dict[int, Batch]) -> dict[str, Any]:
    both = [model, SavedModel(target)]
    parent, ours = run_in_child(measuring.measure, both, batches, doing="running the compiled model and its parent")
    parent.pop("marked")
    if not ours.pop("marked"):
        raise ComponentError("no function marked for XLA after loading", "_XlaMustCompile", "report this")
    for size, times in ours["batches"].items():
        log.info(
            "batch %s: compiled in %.1f s, then %.3g ms a call; the parent %.3g ms",
            *(size, times["compile_s"], 1e3 * times["call_s"], 1e3 * parent["batches"][size]["call_s"]),
        )
    return {"parent": parent, "compiled": ours}
