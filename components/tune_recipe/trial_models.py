"""Making models by the names of the components that do it, and a first look at them.

Each in a process of its own: a converter or a model that crashes is a trial that failed, and not the end of the search.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path

from tfopt import runtimes
from tfopt.artifacts import Examples, Model
from tfopt.components.tune_recipe.recipes import Recipe, Step
from tfopt.data.sample_inputs import draw_inputs, split_batches
from tfopt.errors import ComponentError
from tfopt.execution.isolated import run_component
from tfopt.measurement.parity import compare
from tfopt.processes.subprocess_call import run_in_child

LEAST = 60.0  # seconds that a step may take, however little of the budget is left


class Kitchen:
    """Makes models of one parent, below a folder; what several recipes begin with is made once."""

    def __init__(self, model: Model, examples: Examples, output: str | None, folder: Path, until: float) -> None:
        """Make below ``folder``; stop a step at the moment ``until`` of the monotonic clock.

        Of several outputs, ``output`` is the one that counts when answers are compared; all of them without one.
        """
        self.model, self.examples, self.output, self.folder, self.until = model, examples, output, folder, until
        self._failed: dict[str, ComponentError] = {}

    def make(self, recipe: Recipe) -> Model:
        """Run the steps of a recipe.

        Raises:
            ComponentError: When a step cannot be done, or takes longer than the budget.
        """
        made = self.model
        for count, step in enumerate(recipe.steps, 1):
            place = self.folder / _key(recipe.steps[:count])
            if place.name in self._failed:
                raise self._failed[place.name]
            if not place.exists():
                given = {"model": made.uri, "examples": self.examples.uri, step.output: str(place)}
                try:
                    run_component(step.component, given | step.parameters, doing=str(step), limit_s=self._left())
                except ComponentError as error:  # what one recipe began with in vain, no other begins with again
                    self._failed[place.name] = error
                    raise
            made = Model.open(place)
        return made

    def changed(self, child: Model, records: int, seed: int) -> tuple[int, int, float]:
        """How a child's answers differ from the parent's on a few records that nothing was calibrated on.

        Returns:
            The records whose class changed, the records compared, and 1 - the correlation of the worst output.

        Raises:
            ComponentError: When the child cannot be loaded or run.
        """
        return run_in_child(
            differences, self.model.uri, child.uri, self.examples.uri, self.output, records, seed, doing="comparing",
            limit_s=self._left(),
        )  # fmt: skip

    def _left(self) -> float:
        return max(LEAST, self.until - time.monotonic())


def differences(
    parent: str, child: str, examples: str, output: str | None, records: int, seed: int
) -> tuple[int, int, float]:
    """Be the process that compares; see `Kitchen.changed`."""
    with runtimes.load(Model(parent)) as first, runtimes.load(Model(child)) as second:
        given, _ = draw_inputs(Examples(examples), first.inputs, records=records, seed=seed)
        found = compare(first, second, split_batches(given, first.inputs, 32))
    found = {output: found[output]} if output in found else found
    agreeing = [parity.agreement for parity in found.values() if parity.agreement is not None]
    total = next(iter(found.values())).records
    changed = round((1 - min(agreeing, default=1.0)) * total)
    apart = max(1 - (1.0 if parity.correlation is None else parity.correlation) for parity in found.values())
    return changed, total, apart


def _key(steps: Sequence[Step]) -> str:
    said = json.dumps([[step.component, step.parameters] for step in steps], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()[:16]
