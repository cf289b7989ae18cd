from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.component import Between, Names, Reads
from tfopt.components.evaluate.metrics.user_metrics import read_metrics


@dataclass(frozen=True)
class Settings:
    """Parameters of an evaluation.

    Attributes:
        label: The label feature: an integer class, or numbers in a regression.
        split: Split to evaluate on. ``auto`` uses ``test`` if there is one, else ``eval``. Training keeps the epoch
            that is best on ``eval``, so metrics on it are slightly optimistic; ``chosen_on_it`` names such models.
        task: Meaning of the output. ``auto`` derives it from the label's type, its values and the width of the output,
            logs it with the reason, and checks every record. A label with one value for each output is the class if
            exactly one of them is 1 (one-hot), and ``multi_label`` if they are other integers 0 and 1. With ``other``,
            and with ``auto`` if ``metrics`` are given and no task fits, only these metrics are computed.
        output_kind: Whether the output of classes is probabilities. ``auto`` takes it for logits if it has values
            outside of 0 to 1, or if the outputs of the classes do not add up to 1, and logs it.
        threshold: Probability above which a label is predicted, for the tasks binary and multi_label.
        metrics: Your own metrics (docs/metrics.md): ``module:FUNCTION`` of the input module,
            ``PACKAGE.MODULE:FUNCTION`` of an installed one, or ``tfma:CLASS`` of TensorFlow Model Analysis. The first
            one is the main metric, which goals call quality.
        output: The output to evaluate, if a model has several.
        slices: Features (integers or text, one value each). All metrics are also computed for each value of each.
        top_k: Number of the largest classes among which ``top_K_accuracy`` looks for the label.
        replicates: Number of bootstrap replicates.
        max_skipped: Largest accepted fraction of records that cannot be used: no label, a feature missing or of another
            type, a label that is not finite. A note of the report states how many were skipped.
        seed: Seed of the bootstrap; the same seed gives the same interval on every runner.
        tried: Number of models that the candidates were selected from by their quality on the same records, or number
            of evaluations on them that shall hold together. Intervals hold for so many, or for the candidates if these
            are more.
    """

    label: str = "label"
    split: str = "auto"
    task: Literal["auto", "classification", "binary", "multi_label", "regression", "other"] = "auto"
    output_kind: Literal["auto", "logits", "probabilities"] = "auto"
    threshold: Annotated[float, Between(0, 1)] = 0.5
    metrics: Annotated[tuple[str, ...], Reads(read_metrics, ("module:mean_iou",)), Names()] = ()
    output: str | None = None
    slices: Annotated[tuple[str, ...], Names()] = ()
    top_k: Annotated[int, Between(2)] = 5
    replicates: Annotated[int, Between(100, 10_000)] = 400
    max_skipped: Annotated[float, Between(0, 1)] = 0.0
    seed: int = 0
    tried: Annotated[int, Between(1)] = 1
