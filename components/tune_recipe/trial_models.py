"""Models of a search: run the components of a recipe by name, and compare a few outputs with the baseline.

Each component, and the comparison, runs in a process of its own: a crash is a failed trial and does not end the search.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfopt import runtimes
from tfopt.artifacts import Examples, Model
from tfopt.components.tune_recipe.recipes import Recipe, Step
from tfopt.data.sample_inputs import draw_inputs, split_batches
from tfopt.errors import ComponentError
from tfopt.execution.execute import run_component
from tfopt.measurement.parity import compare
from tfopt.processes.subprocess_call import run_in_child

MIN_SECONDS = 60.0  # that a step may take even if less of the budget is left


@dataclass(frozen=True)
class OutputDifference:
    """The difference between the outputs of a model and its baseline."""

    changed: int  # number of records whose class changed
    records: int  # number of compared records
    decorrelation: float  # 1 minus the correlation of the worst output


@dataclass(frozen=True)
class ModelBuilder:
    """Builds models from one baseline in a folder; steps that several recipes start with run once."""

    model: Model  # the baseline
    examples: Examples  # for calibration and comparison
    output: str | None  # the output to compare; all of them if None
    folder: Path
    deadline: float  # the time, by `time.monotonic`, at which a running step is stopped
    failed: dict[str, ComponentError] = field(default_factory=dict)  # errors of steps by the name of their folder

    def build(self, recipe: Recipe) -> Model:
        """Run the steps of a recipe; raise ComponentError if one fails, or takes longer than the budget."""
        model = self.model
        for count, step in enumerate(recipe.steps, 1):
            folder = self.folder / _key(recipe.steps[:count])
            if folder.name in self.failed:
                raise self.failed[folder.name]
            if not folder.exists():
                arguments: dict[str, object] = {"model": model.uri, "examples": self.examples.uri}
                arguments |= {step.output: str(folder), **step.parameters, "signature": self.model.signature}
                try:
                    run_component(step.component, arguments, doing=str(step), limit_s=self._seconds_left())
                except ComponentError as error:  # other recipes with the same first steps fail without running them
                    self.failed[folder.name] = error
                    raise
            model = Model.open(folder)
        return model

    def compare_outputs(self, child: Model, records: int, seed: int) -> OutputDifference:
        """Compare a model with the baseline on a few records that no model was calibrated on.

        Raises:
            ComponentError: If the model cannot be loaded or run.
        """
        return run_in_child(
            measure_difference, self.model.uri, child.uri, self.examples.uri, self.output, records, seed,
            self.model.signature, doing="comparing", limit_s=self._seconds_left(),
        )  # fmt: skip

    def _seconds_left(self) -> float:
        return max(MIN_SECONDS, self.deadline - time.monotonic())


def measure_difference(
    baseline: str, child: str, examples: str, output: str | None, records: int, seed: int, signature: str | None = None
) -> OutputDifference:
    """Compare two models in this process; see `ModelBuilder.compare_outputs`."""
    first, second = (runtimes.load(Model(uri), signature=signature) for uri in (baseline, child))
    with first, second:
        inputs, _ = draw_inputs(Examples(examples), first.inputs, records=records, seed=seed)
        parities = compare(first, second, split_batches(inputs, first.inputs, 32))
    if output in parities:
        parities = {output: parities[output]}
    agreements = [parity.agreement for parity in parities.values() if parity.agreement is not None]
    total = next(iter(parities.values())).records
    correlations = [1.0 if parity.correlation is None else parity.correlation for parity in parities.values()]
    return OutputDifference(round((1 - min(agreements, default=1.0)) * total), total, 1 - min(correlations))


def _key(steps: Sequence[Step]) -> str:
    text = json.dumps([[step.component, step.parameters] for step in steps], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
