from typing import Annotated, Literal

from tfopt.artifacts import Evaluation, Examples, Model
from tfopt.component import Between, Input, Output, component


@component(image="beam", beam=True, cpu=2, memory="8Gi")
def evaluate(
    baseline: Input[Model],
    candidates: Input[list[Model]],
    examples: Input[Examples],
    evaluation: Output[Evaluation],
    *,
    label: str = "label",
    split: str = "auto",
    task: Literal["auto", "classification", "binary", "regression"] = "auto",
    output: str | None = None,
    slices: list[str] = [],  # noqa: B006  (a declared default, never changed)
    top_k: Annotated[int, Between(2)] = 5,
    replicates: Annotated[int, Between(100, 10_000)] = 400,
    seed: int = 0,
) -> None:
    """Measure how well each model predicts, and how far each candidate is from the baseline.

    Every model, of any format, answers the same records in the same batches, on Beam. Each metric comes with a 95 %
    interval, and so does its difference to the baseline: a Poisson bootstrap in which a record has the same weights
    for all models, so that what they share cancels. A candidate that cannot be loaded or run, answers NaN, or was
    calibrated on the split that it would be judged on, is a row with the reason; the other rows are not touched. Where
    it was calibrated on another split that holds the same records, a note says so. Every record is accounted for, or
    the step fails.

    Classification gives accuracy, top-k accuracy and log loss; two classes also give the area under the ROC curve
    (AUC), from histograms whose resolution is stated with it, and the ROC curve; regression gives the mean absolute and
    squared error. Up to 100 classes each model's confusion matrix is kept too: how many records of each true class
    (rows) were taken for which (columns).

    Args:
        baseline: The model that the others are compared with.
        candidates: The models to compare, of any format, with the baseline's inputs.
        examples: Records that none of the models was trained on.
        evaluation: Metrics, differences, output parity, confusion matrices and slices in ``evaluation.json``.
        label: The feature to predict: an integer class, or numbers in a regression.
        split: Which split to evaluate on; ``auto`` takes ``test`` where there is one, and else ``eval``. Training keeps
            the epoch that is best on ``eval``, so that this flatters a little; ``chosen_on_it`` names such models.
        task: What the output means; ``auto`` goes by the label's type, its values and the width of the output.
        output: Which output is judged, where a model has several.
        slices: Features (integers or text, one value each) for each value of which everything is measured apart.
        top_k: How many of the largest classes may hold the right one in ``top_K_accuracy``.
        replicates: How many times the bootstrap resamples.
        seed: Of the bootstrap; the same seed gives the same interval on every runner.

    Raises:
        ComponentError: When the baseline cannot be run on the examples, the label does not fit the task, or the
            records read, evaluated and skipped do not add up.

    Reference:
        Chamandy et al., "Estimating Uncertainty for Massive Data Streams", 2012 (the Poisson bootstrap).
    """
    from tfopt.components.evaluate.beam_pipeline import evaluate_models, save
    from tfopt.components.evaluate.plan import Question

    question = Question(label, split, task, output, tuple(slices), top_k, replicates, seed)
    content = evaluate_models(baseline, candidates, examples, question, evaluation.uri)
    save(content, evaluation)
    first = next(iter(content["models"][0]["metrics"]))
    scores = {m["name"]: m["metrics"][first]["value"] for m in content["models"] if not m["error"]}
    evaluation.metadata |= {f"{first}[{name}]": value for name, value in scores.items()}
