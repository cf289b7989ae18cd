"""The same menu as `optimize`, with TensorRT's engines, for machines and clusters that have an NVIDIA GPU.

A DAG of its own, since it is fixed before it runs. On Kubeflow a step that asks for a GPU waits for one, in a cluster
without any for ever; so it is asked for by name. On a machine without a GPU each engine is a row that says so.
"""

from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Input
from tfopt.pipelines.optimize import MENU, make, prove
from tfopt.trace import Steps

ENGINES = ("tensorrt fp32", "tensorrt fp16", "tensorrt int8")


def optimize_gpu(
    steps: Steps,
    model: Input[SavedModel],
    examples: Input[Examples],
    *,
    label: str = "label",
    goals: list[str] = ["quality max_degradation 1%"],  # noqa: B006  (a default is read, never changed)
    objective: str = "latency",
    seconds: float = 6.0,
    destination: str = "pushed",
    layout: str = "auto",
) -> None:
    """Do as `optimize`, with TensorRT engines among the candidates.

    Args:
        steps: The components, of whichever engine runs this.
        model: A trained model, the parent every candidate is compared with.
        examples: Examples with the splits train (calibration) and eval, and test where there is one (measurement).
        label: The feature that holds the truth.
        goals: What a candidate must satisfy, such as "accuracy max_degradation 0.5%"; quality is the main metric.
        objective: What the winner is best at among those that satisfy the goals.
        seconds: How long the speed of each model is measured.
        destination: The folder that receives numbered versions.
        layout: How a version lies there: as its format's usual server wants it (auto), or tf_serving, triton or plain.
    """
    candidates = make(steps, model, examples, (*MENU, *ENGINES))
    prove(steps, model, candidates, examples, label, goals, objective, seconds, destination, layout)
