"""Optimize a model in one call from Python: `optimize`, and the result that it returns."""

import io
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt import formatting, runtimes
from tfopt.artifacts import (
    Benchmark,
    Decision,
    Evaluation,
    Examples,
    Files,
    Model,
    PythonModule,
    SavedModel,
    notebook_html,
)
from tfopt.artifacts.tensor_spec import fixed_batch
from tfopt.cli.engines import run_recorded
from tfopt.cli.terminal.log_redirect import progress_on_terminal
from tfopt.component import Group, Input
from tfopt.dag.dag import Dag
from tfopt.dag.outcome import Outcome
from tfopt.dag.policy_checks import check_policies
from tfopt.dag.source_checks import check_sources
from tfopt.dag.tracing import Inherited, Steps, trace
from tfopt.data.batches import parse_records, serialize_records
from tfopt.data.object_columns import Naming, named_columns
from tfopt.declaration.component import SIGNATURE
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.execution import object_inputs
from tfopt.execution.object_inputs import Data, Location, ModelObject
from tfopt.pipelines import optimize as pipeline
from tfopt.reports.decision_report import DecisionReport
from tfopt.runtimes import Runtime
from tfopt.storage import remote_files
from tfopt.storage.run_folder import SOURCES

log = logging.getLogger(__name__)

SHARES = {"train": 1, "eval": 4}  # calibration needs few records, the evaluation as many as there are
BATCH = 128  # records in a call of `OptimizedModel.predict`
WIDTH = 120  # characters of the table, where no terminal has a width


@dataclass(frozen=True)
class OptimizedModel:
    """The selected model of an optimization.

    Attributes:
        artifact: The model as an artifact, which all components take.
        naming: Names of the inputs, in the order of the original model.
    """

    artifact: Model
    naming: Naming

    @property
    def path(self) -> Path:
        """The file of the model, or the folder of a SavedModel; `artifact` has what belongs to it, too."""
        return Path(getattr(self.artifact, self.format))

    @property
    def name(self) -> str:
        """The name in tables, such as ``tflite int8``."""
        return self.artifact.name

    @property
    def format(self) -> str:
        """The format: ``saved_model``, ``tflite``, ``onnx`` or ``openvino``."""
        return self.artifact.format

    @property
    def size(self) -> int:
        """The size of its files in bytes."""
        return self.artifact.sizes()["raw"]

    def load(self) -> Runtime:
        """Return the model in the runtime of its format: ``run({"NAME": array})`` returns outputs by name."""
        return runtimes.load(self.artifact)

    def predict(self, x: Any) -> NDArray[Any] | dict[str, NDArray[Any]]:
        """Return the outputs for records in the form that `optimize` takes: an array, or by name if there are several.

        Raises:
            ComponentError: If the records do not fit the inputs of the model.
        """
        columns = {name: array.reshape(len(array), -1) for name, array in named_columns(x, self.naming).items()}
        records, inputs = serialize_records(columns), self._runtime.inputs
        size = fixed_batch(inputs) or BATCH
        outputs: dict[str, list[NDArray[Any]]] = {name: [] for name in self._runtime.outputs}
        for start in range(0, len(records), size):
            block = records[start : start + size]
            padding = block[-1:] * (size - len(block)) if fixed_batch(inputs) else []
            for name, array in self._runtime.run(parse_records(block + padding, inputs)).items():
                outputs[name].append(array[: len(block)])
        joined = {name: np.concatenate(arrays) for name, arrays in outputs.items()}
        return joined if len(joined) > 1 else next(iter(joined.values()))

    @cached_property
    def _runtime(self) -> Runtime:
        return self.load()

    def __repr__(self) -> str:
        """Return name, format and path."""
        return f"OptimizedModel({self.name!r}, {self.format}, {str(self.path)!r})"


@dataclass(frozen=True, repr=False)
class OptimizationResult:
    """The result of `optimize`: a terminal shows the table of all models, a notebook the page of the decision.

    Attributes:
        path: The folder of the run, with all models and reports; ``tfopt open`` and ``tfopt diff`` take it.
        model: The selected model: the given one, if no candidate is measurably better.
        decision: Why it was selected, and the verdict on each other model; ``blessed`` if it meets the goals.
        steps: The outputs of each step by name, such as ``steps["export_tflite_int8"].outputs["exported"]``.
    """

    path: Path
    model: OptimizedModel
    decision: DecisionReport
    steps: Mapping[str, Outcome]

    def __repr__(self) -> str:
        """Return the table that ends a run in the terminal, with the reason of the decision."""
        from rich.console import Console

        from tfopt.cli.terminal.summary_table import print_summary  # imports rich

        text = io.StringIO()
        console = Console(
            file=text, width=shutil.get_terminal_size((WIDTH, 0)).columns, highlight=False, force_jupyter=False
        )
        evaluated, measured = (self.steps[name].outputs for name in ("evaluate", "benchmark"))
        reports = Evaluation(evaluated["evaluation"].uri), Benchmark(measured["benchmark"].uri)
        print_summary(self._page, *reports, console)
        return f"{text.getvalue()}\nmodel: {self.model.path}\nreport: {self._page.path / Decision.page}"

    def _repr_html_(self) -> str:
        size = formatting.data_size(self.model.size)
        facts = [("selected", self.model.name), ("size", size), ("model", self.model.path), ("run", self.path)]
        return notebook_html.table("Result of optimize", ["fact", "value"], facts) + self._page._repr_html_()

    @property
    def _page(self) -> Decision:
        return Decision(self.steps["select_model"].outputs["decision"].uri)


def optimize(
    model: ModelObject | Location,
    data: Data | Location,
    *,
    path: Location = "runs/optimize",
    formats: Sequence[str] = (),
    goals: Sequence[str] | None = None,
    module: Location | None = None,
    **values: Any,
) -> OptimizationResult:
    """Make a trained model smaller and faster, measure all candidates on data, and select one.

    It is the pipeline of ``tfopt run optimize``, in this process. Candidates are made from the model, compared with it
    in quality and speed, and one that meets the goals and is measurably better is selected; otherwise the model itself.
    A second call with the same folder repeats only the steps whose model, data or values have changed.

    Args:
        model: A trained model: of Keras 3 or tf_keras, a ``tf.Module`` with a signature, or the path of a saved one.
        data: Records that the model was not trained on: arrays ``(x, y)``, or mappings of arrays by name of input and
            output; a DataFrame with the column ``label``; a ``tf.data.Dataset``; or the path of examples. A fifth of
            the records calibrates (split train), the others evaluate (split eval), or those that
            ``{"train": (x, y), "eval": (x, y)}`` names.
        path: The folder of the run.
        formats: The candidates to make, such as ``tflite`` or ``onnx int8``; by default all of the pipeline.
        goals: Conditions that a candidate must meet; by default ``["quality max_degradation 1%"]``.
        module: Your Python file with functions for ``metrics``.
        values: Other values of the pipeline, which ``tfopt run optimize --set help`` explains: ``label`` (the name of
            the label, by default ``label``), ``output`` (the output to evaluate; of several, by default the first one
            that has labels), ``metrics``, ``objective``, ``seconds``, ``confidence`` and others.

    Returns:
        The selected model, the decision, and the folder with all models and reports.

    Raises:
        ComponentError: If the model or the data cannot be used, a value is not allowed, or a step fails. A candidate
            that cannot be made does not fail: the table has the reason.
    """
    remote_files.check_characters(str(path))
    root = Path(path).absolute()
    dag = _trace(formats)
    values |= {} if goals is None else {"goals": list(goals)}
    values |= {} if module is None else {"module": module}
    with progress_on_terminal():
        saved = object_inputs.save_model(model, root / SOURCES)
        signature = str(values.get(SIGNATURE.name, SIGNATURE.default))
        naming = object_inputs.model_naming(model, saved, "", signature, needs_label=True)
        values |= {"output": output} if (output := _choose_output(naming, data, values)) else {}
        naming = replace(naming, label=object_inputs.label_of(values, data))
        examples = object_inputs.save_data(data, root / SOURCES, naming, SHARES)
        sources = {"label": naming.label, "model": saved.uri, "examples": examples.uri}
        values = {"destination": str(root / "pushed")} | values | sources
        checked = dag.values(values)
        check_sources(dag, checked)
        check_policies(dag, checked)
        steps = run_recorded(dag, checked, root, "process")
    selected = Model(steps["select_model"].outputs["selected"].uri)
    selected.signature = signature
    decision = Decision(steps["select_model"].outputs["decision"].uri).load()
    return OptimizationResult(root, OptimizedModel(selected, naming), decision, steps)


def _trace(formats: Sequence[str]) -> Dag:
    """Return the DAG of the pipeline `tfopt.pipelines.optimize` with some of its candidates."""
    candidates = pipeline.CANDIDATES
    kinds = [formats] if isinstance(formats, str) else formats
    for kind in kinds:
        if not _of_kind(kind, candidates):
            expected = f"candidates of the pipeline: {', '.join(candidates)}"
            raise ComponentError(f"formats: {kind!r}", expected, nearest(kind, candidates))
    names = [name for name in candidates if not kinds or any(_of_kind(kind, [name]) for kind in kinds)]

    def optimize(
        steps: Steps,
        model: Input[SavedModel],
        examples: Input[Examples],
        module: Input[PythonModule] | None = None,
        recording: Input[Files] | None = None,
        *,
        selection: Group[pipeline.Selection],
        replaying: Group[pipeline.Replaying],
        signature: Inherited,
        trust_model_code: Inherited,
    ) -> dict[str, object]:
        """Optimize a trained model."""
        loading = pipeline.Loading(signature=signature, trust_model_code=trust_model_code)
        made = pipeline.make_candidates(steps, model, examples, tuple(names), loading)
        replay = pipeline.replay_inputs(recording, replaying)
        return pipeline.select_and_push(steps, model, made, examples, selection, loading, module, replay)

    return trace(optimize)


def _of_kind(kind: str, candidates: Sequence[str]) -> list[str]:
    """Return the candidates with this name, or of this format in any precision."""
    return [name for name in candidates if f"{name} ".startswith(f"{kind} ")]


def _choose_output(naming: Naming, data: Any, values: Mapping[str, Any]) -> str | None:
    """Return the output to evaluate if there are several and none is named: the first one with labels."""
    if len(naming.outputs) < 2 or values.get("output"):
        return None
    names = object_inputs.label_names(data, naming)
    chosen = next((name for name in naming.outputs if name in names), None)
    if chosen is None:
        received = f"a model with {len(naming.outputs)} outputs: {', '.join(naming.outputs)}"
        fix = f'pass output="{naming.outputs[0]}", or labels by output: (x, {{"{naming.outputs[0]}": y}})'
        raise ComponentError(received, "the output to evaluate", fix)
    log.info("output %s is evaluated, of %s; output=NAME evaluates another", chosen, ", ".join(naming.outputs))
    return chosen
