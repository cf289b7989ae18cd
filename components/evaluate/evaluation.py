"""One evaluation: the Beam pipeline, during a run in a process of its own, and the file of its report."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfopt.artifacts import Evaluation, Model
from tfopt.data import beam_runner
from tfopt.processes.subprocess_call import run_isolated
from tfopt.reports.evaluation_report import EvaluationReport
from tfopt.storage.remote_files import is_remote, upload

LARGE = 64 << 20  # bytes of all models together


def evaluate(baseline: Model, candidates: list[Model], *arguments: Any) -> EvaluationReport:
    """Call `beam_pipeline.evaluate_models`; large models get a process of their own, whose memory ends with it.

    For small ones, the import of Beam in another process would take longer than the evaluation.
    """
    models = [baseline, *candidates]
    size = sum(file.stat().st_size for model in models if not is_remote(model.uri) for file in model.payload())
    call = (_evaluate, beam_runner.current_arguments(), baseline, candidates, *arguments)
    return run_isolated(*call, doing="evaluating the models") if size > LARGE else _evaluate(*call[1:])


def _evaluate(beam_arguments: Sequence[str], *arguments: Any) -> EvaluationReport:
    from tfopt.components.evaluate.beam_pipeline import evaluate_models  # imports Apache Beam

    with beam_runner.runner_arguments(beam_arguments):  # another process does not know them
        return evaluate_models(*arguments)


def save_report(report: EvaluationReport, evaluation: Evaluation) -> None:
    """Write ``evaluation.json`` to a local folder or a remote address."""
    if not is_remote(evaluation.uri):
        evaluation.write(report)
        return
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        Evaluation(folder).write(report)
        upload(Path(folder), evaluation.uri)
