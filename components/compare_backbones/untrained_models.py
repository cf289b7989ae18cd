"""Making what is measured: a backbone with untrained weights, counted, and written for each runtime.

Each step is done in a process of its own: what crashes there is a row with its reason.
"""

import math
from pathlib import Path
from typing import Any

from tfopt.artifacts import Examples, Inspection
from tfopt.artifacts.formats import FORMATS
from tfopt.component import find
from tfopt.components.compare_backbones.budget import Budget
from tfopt.components.compare_backbones.reading import Size
from tfopt.components.compare_backbones.request import Question
from tfopt.execution.isolated import run_component
from tfopt.processes.subprocess_call import run_in_child

LOOSE = 0.1  # of the output's range: an untrained model's answers may lie close together, and only its speed is asked
BATCH = 32  # records whose statistics the batch norms keep


def build(module: Path, asked: Question, examples: Examples | None, place: Path, budget: Budget) -> dict[str, Any]:
    """Save the module's model, untrained, into ``place/saved_model``, and return what `inspect_model` counted.

    Raises:
        ComponentError: When it cannot be built, or the budget is used up.
    """
    given = str(module), str(place), examples.uri if examples else None
    settled = asked.image, asked.label, asked.stored, asked.seed
    return run_in_child(_build, *given, *settled, doing=f"building {module.stem}", limit_s=budget.left())


def export(place: Path, kind: str, examples: Examples | None, budget: Budget) -> Path:
    """Write the saved model for a runtime, below ``place`` too; return where it is.

    Raises:
        ComponentError: When it cannot be written, or the budget is used up.
    """
    saved = place / "saved_model"
    if kind == "saved_model":
        return saved
    step, output = FORMATS[kind].exporter, FORMATS[kind].exported
    assert step
    given = {"model": str(saved), "examples": seen(place, examples).uri, output: str(place / kind)}
    run_component(step, given | {"tolerance": LOOSE}, doing=f"{step} of {place.name}", limit_s=budget.left())
    return place / kind


def seen(place: Path, examples: Examples | None) -> Examples:
    """What the models of a backbone are shown: the examples, or the pixels that were drawn where there are none."""
    return examples or Examples(place / "examples")


def _build(
    module: str, place: str, examples: str | None, image: str, label: str, stored: Size, seed: int
) -> dict[str, Any]:
    """Be the process that builds."""
    from tfopt.artifacts.tensor_spec import TensorSpec
    from tfopt.components.compare_backbones.settling import draw_examples, settle
    from tfopt.data.sample_inputs import draw_inputs
    from tfopt.keras_models import io as keras_models
    from tfopt.training.determinism import set_seeds
    from tfopt.training.model_assembly import assemble
    from tfopt.training.user_module import UserModule

    folder = Path(place)
    if not examples:
        draw_examples(folder / "examples", image, stored, seed)
    shown = seen(folder, Examples(examples) if examples else None)
    set_seeds(seed)
    parts = assemble(UserModule(Path(module)), {image: TensorSpec("float32", (None, math.prod(stored)))}, shown, label)
    batch, _ = draw_inputs(
        shown, {image: TensorSpec("float32", (None, *stored))}, records=BATCH, seed=seed, seen="eval"
    )
    settle(parts.saved, batch[image], seed)
    keras_models.save(parts.saved, folder / "saved_model")
    find("inspect_model")(model=folder / "saved_model", inspection=folder / "inspection")
    return Inspection(folder / "inspection").read()
