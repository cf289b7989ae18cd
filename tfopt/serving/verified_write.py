"""Write a rewritten frozen model as a SavedModel, and compare it with its baseline as TensorFlow serves both."""

from collections.abc import Callable
from pathlib import Path

from tfopt import runtimes
from tfopt.artifacts import Examples, Model, SavedModel
from tfopt.artifacts.model_card import Verification
from tfopt.graph.frozen_model import Frozen
from tfopt.graph_checks.comparison import Comparison, equal_signatures, tolerance_of
from tfopt.runtimes import environment
from tfopt.saved_models import saved_model
from tfopt.saved_models.state import changes_state
from tfopt.serving import warm_up
from tfopt.storage.staging import link_tree

ASSETS = (environment.FILE, warm_up.FILE)  # valid for every graph with the same signatures; not so the XLA cache


def write_verified(
    baseline: SavedModel,
    rewritten: Frozen,
    target: Path,
    examples: Examples | None,
    tolerance: float | None,
    *,
    what: str,
    fix: str,
    write: Callable[[Frozen, Path], None] = saved_model.write,
) -> Verification:
    """Write a frozen model as a SavedModel below ``target``, load it again, and compare it with its baseline.

    Without examples, the inputs are random. The tolerance is a fraction of an output's range; None for that of the
    model's dtypes. The error message calls the rewritten model ``what``, and has the third part ``fix``.

    Raises:
        ComponentError: If an output differs by more than the tolerance, or the baseline cannot be run.
    """
    allowed = tolerance_of(rewritten) if tolerance is None else tolerance
    written = SavedModel(target / "Format-Serving")
    write(rewritten, written.path)
    copy_assets(baseline, written.path)
    comparison = Comparison(
        rewritten.signatures,
        lambda key: runtimes.load(baseline, signature=key),
        examples,
        baseline.signature,
        stateful=changes_state(rewritten.graph),
        equal=equal_signatures(rewritten, baseline.signature),
    )
    return comparison.verify(lambda key: runtimes.load(written, signature=key), allowed, what=what, fix=fix)


def copy_assets(model: Model, saved_model: Path) -> None:
    """Copy a model's environment variables and warm-up requests to a SavedModel made from it, unless it has its own."""
    for file in ASSETS:
        source = model.saved_model / file if model.saved_model else None
        if source and source.is_file() and not (saved_model / file).exists():
            link_tree(source, saved_model / file)
