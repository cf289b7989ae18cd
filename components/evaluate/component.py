import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfopt.artifacts import Evaluation, Examples, Model, PythonModule
from tfopt.component import Group, Input, Output, component
from tfopt.components.evaluate.parameters import Settings
from tfopt.data import beam_runner
from tfopt.errors import AttemptError
from tfopt.processes.isolation import limits_of_children
from tfopt.processes.subprocess_call import run_isolated
from tfopt.reports.evaluation_report import EvaluationReport
from tfopt.storage.remote_files import is_remote, upload
from tfopt.training.compute.device_memory import gpu_count

log = logging.getLogger(__name__)

LARGE = 64 << 20  # bytes of all models together


@component(image="beam", purpose="measurement", beam=True, cpu=2, memory="8Gi", model_signature=True)
def evaluate(
    baseline: Input[Model],
    candidates: Input[list[Model]],
    examples: Input[Examples],
    evaluation: Output[Evaluation],
    module: Input[PythonModule] | None = None,
    *,
    settings: Group[Settings],
) -> None:
    """Measure the predictive quality of each model, and how far each candidate is from the baseline.

    All models, of any format, run on the same records in the same batches, on Beam. Each metric has an interval, and so
    has its difference to the baseline; the intervals of all candidates hold together with 95 % (Bonferroni). They are
    exact for shares (Clopper and Pearson; Gaffke); for other metrics they come from a Bayesian bootstrap in which a
    record has the same weights for all models, so that common variation cancels. Each counts one unseen record that is
    as bad as a record can be, so that a few records without a difference prove little (docs/verdicts.md). The constant
    model, which answers every record with the most frequent class or the median of the labels, is evaluated too. A
    candidate is a row with the reason if it cannot be loaded or run, outputs NaN, or was calibrated on the evaluated
    split; the other rows are not affected. If it was calibrated on another split that contains the same records, a note
    reports this. The step fails unless every record is accounted for.

    Notes, which reach the decision, state how many records were skipped, are copies of others, have the same features
    and another label, or are in the split ``train`` too, whose records are read for this (of large data a part, which
    the note states). A model whose card has other class numbers than the examples is not evaluated.

    Classification, of integer or one-hot labels, reports accuracy, top-k accuracy and log loss. Two classes also have
    precision, recall and F1 of class 1, the ROC curve, and the areas under it (``auc``) and under the precision-recall
    curve (``pr_auc``), from histograms whose resolution is stated. For up to 100 classes there are the means of
    precision, recall and F1 over the classes (``macro_f1``), and a confusion matrix: the number of records by true
    class (rows) and predicted class (columns). Several labels of a record, each 0 or 1, have the share of right labels,
    of records in which all are right (``exact_match_accuracy``), log loss, and the means of precision, recall and F1
    over the labels. Regression reports the mean absolute and squared error.

    ``metrics`` adds your own: functions of a batch of labels and predictions (docs/metrics.md). They have intervals,
    differences and slices like the others, and goals, reports and the run history take them by their name.

    Args:
        baseline: The model that the others are compared with.
        candidates: The models to compare, of any format, with the baseline's inputs.
        examples: Records that none of the models was trained on.
        evaluation: Metrics, differences, output parity, confusion matrices and slices in ``evaluation.json``.
        module: Your Python file with functions for ``metrics``.
        settings: Parameters of the evaluation.

    Raises:
        ComponentError: If the baseline cannot be run on the examples, the label does not fit the task, a metric of the
            module raises or does not return numbers, the records read, evaluated and skipped do not add up, more
            records than ``max_skipped`` cannot be used, or the examples number the baseline's classes otherwise.

    Reference:
        Rubin 1981, "The Bayesian bootstrap"; Gaffke 2005, "Three test statistics for a nonparametric one-sided
        hypothesis on the mean of a nonnegative variable".
    """
    local = [model for model in (baseline, *candidates) if not is_remote(model.uri)]
    size = sum(file.stat().st_size for model in local for file in model.payload())
    call = (beam_runner.current_arguments(), (examples, settings, evaluation.uri, module), baseline, candidates)
    # The memory of large models, and of a GPU, ends with their process, and that of models which are not trusted can be
    # limited. For others, importing Beam there would take too long.
    has_own = size > LARGE or gpu_count() > 0 or limits_of_children() is not None
    report = _evaluate_isolated(*call) if has_own else _evaluate(*call)
    _write(report, evaluation)
    first = next(iter(report.models[0].metrics))
    evaluation.metadata |= {
        f"{first}[{model.name}]": model.metrics[first].value for model in report.models if not model.error
    }


def _write(report: EvaluationReport, evaluation: Evaluation) -> None:
    if not is_remote(evaluation.uri):
        evaluation.write(report)
        return
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        Evaluation(folder).write(report)
        upload(Path(folder), evaluation.uri)


def _evaluate_isolated(
    beam_arguments: Sequence[str],
    fixed: tuple[Examples, Settings, str, PythonModule | None],
    baseline: Model,
    candidates: list[Model],
) -> EvaluationReport:
    """Evaluate in a process of its own; a candidate that ends it has the reason as its error.

    Raises:
        AttemptError: If the process ends without these candidates, too.
    """

    def run(some: list[Model], crashed: Mapping[int, str] | None = None) -> EvaluationReport:
        call = (beam_arguments, fixed, baseline, some, crashed)
        return run_isolated(_evaluate, *call, doing="evaluating the models")

    def find_crashed(numbers: Sequence[int], reason: str) -> dict[int, str]:
        """Return the candidates that end the process, by halves of those that ended it together."""
        if len(numbers) < 2:
            return dict.fromkeys(numbers, reason)
        crashed: dict[int, str] = {}
        middle = len(numbers) // 2
        for half in (numbers[:middle], numbers[middle:]):
            try:
                run([candidates[number - 1] for number in half])
            except AttemptError as error:
                crashed |= find_crashed(half, error.received.splitlines()[0])
        return crashed

    try:
        return run(candidates)
    except AttemptError as error:
        reason = error.received.splitlines()[0]
        log.warning("%s; looking for the candidates that end it, in halves", reason)
    return run(candidates, find_crashed(range(1, len(candidates) + 1), reason))


def _evaluate(
    beam_arguments: Sequence[str],
    fixed: tuple[Examples, Settings, str, PythonModule | None],
    baseline: Model,
    candidates: list[Model],
    crashed: Mapping[int, str] | None = None,
) -> EvaluationReport:
    from tfopt.components.evaluate.beam_pipeline import evaluate_models  # imports Apache Beam

    with beam_runner.runner_arguments(beam_arguments):  # another process does not know them
        return evaluate_models(baseline, candidates, *fixed, crashed=crashed)
