"""Cast a model: choose operations, cast them, revert layers with large errors, write the model and verify it."""

import logging
from collections.abc import Sequence
from pathlib import Path

from tfopt import runtimes
from tfopt.artifacts import Examples, SavedModel
from tfopt.artifacts.model_card import Verification
from tfopt.components.cast_precision.castable_ops import candidates
from tfopt.components.cast_precision.insert_casts import rewritten
from tfopt.components.cast_precision.revert_layers import revert
from tfopt.errors import ComponentError
from tfopt.graph import law_runner as passes
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.report import Report
from tfopt.graph_checks.comparison import (
    TOLERANCE,
    Comparison,
    largest_error,
    special_inputs,
    why_no_special_values,
)
from tfopt.graph_checks.frozen_runtime import FrozenRuntime
from tfopt.graph_checks.special_values import IEEE
from tfopt.saved_models.saved_model import opened, write
from tfopt.serving.saved_model_assets import copy_assets
from tfopt.value_types import JsonObject

# Run before the cast, so that constants computed from constants are computed in float32.
FIRST = ("strip_unused", "drop_control_edges", "drop_training_nodes", "fold_constants")

log = logging.getLogger(__name__)


def cast_model(
    model: SavedModel,
    target: Path,
    examples: Examples | None,
    precision: str,
    keep: Sequence[str],
    tolerance: float | None,
) -> JsonObject:
    """Write the cast model into the staging folder ``target`` and return the content of its model card.

    Raises:
        ComponentError: See `cast_precision`.
    """
    allowed = TOLERANCE[precision] if tolerance is None else tolerance
    with opened(model) as frozen:
        parent = passes.optimize(frozen, FIRST, Report())
        chosen, stays = candidates(parent, precision, keep)
        if not chosen:
            raise ComponentError(
                f"nothing to cast: {_reasons(stays)}",
                "operations in float32 with a 16-bit kernel",
                "leave the model as it is",
            )
        comparison = Comparison(
            *(parent.signatures, lambda key: FrozenRuntime(frozen, key), examples, model.signature),
            special_inputs(frozen),
        )
        taken_back, errors = revert(
            chosen, lambda nodes: _error(rewritten(parent, nodes, precision), comparison), allowed
        )
        left = chosen.difference(*taken_back.values())
        if not left:
            raise ComponentError(
                "no layer can be cast within the tolerance, not even alone",
                f"an error of at most {allowed:g} of the output's range",
                "pass a larger tolerance, or leave the model as it is",
            )
        child = rewritten(parent, left, precision)
        special = comparison.special_differences(lambda key: FrozenRuntime(child, key), (IEEE,))
        for line in special:
            log.warning("on special values: %s", line)
        write(child, target / "Format-Serving")
        copy_assets(model, target / "Format-Serving")
    report = {
        "cast": len(left),
        "stays": stays,
        "taken_back": {name: errors[name] for name in taken_back},
        "errors_alone": errors,
        "special_values": special or why_no_special_values(frozen) or "NaN and infinities at the same places",
    }
    verified, error = _verify(SavedModel(target), comparison, allowed)
    log.info(
        "%d operations in %s, %d layers reverted; largest error %.2g", len(left), precision, len(taken_back), error
    )
    return {"name": f"cast {precision}", "precision": precision, "report": report, "verified": verified}


def _error(child: Frozen, comparison: Comparison) -> float:
    try:
        return largest_error(comparison.errors(lambda key: FrozenRuntime(child, key)))[1]
    except ComponentError:  # NaN or infinity where the output of the parent is finite
        return float("inf")


def _verify(written: SavedModel, comparison: Comparison, allowed: float) -> tuple[Verification, float]:
    """Return the parity facts of the written model and its largest error."""
    outputs = comparison.errors(lambda key: runtimes.load(written, signature=key))
    output, error = largest_error(outputs)
    if error > allowed:
        raise ComponentError(
            f"{output} differs by {error:.2g} of its range", f"at most {allowed:g}", "pass a larger tolerance"
        )
    source, skipped = comparison.source, comparison.skipped
    return {"inputs": source, "tolerance": allowed, "skipped": skipped, "outputs": outputs}, error


def _reasons(stays: dict[str, dict[str, int]]) -> str:
    return "; ".join(f"{reason}: {', '.join(ops)}" for reason, ops in stays.items()) or "it computes nothing in float32"
