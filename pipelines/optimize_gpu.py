"""The same menu as `optimize`, with TensorRT's engines, for machines and clusters that have an NVIDIA GPU.

A DAG of its own, since it is fixed before it runs. On Kubeflow a step that asks for a GPU waits for one, in a cluster
without any for ever; so it is asked for by name. On a machine without a GPU each engine is a row that says so.
"""

from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Input
from tfopt.trace import Steps
from tfopt.model_store.last_run import Destination
from tfopt.pipelines.optimize import MENU, make, prove

ENGINES = ("tensorrt fp32", "tensorrt fp16", "tensorrt int8")


def optimize_gpu(
    steps: Steps,
    model: Input[SavedModel],
    examples: Input[Examples],
    *,
    label: str = "label",
    output: str | None = None,
    goals: list[str] = ["quality max_degradation 1%"],  # noqa: B006  (a default is read, never changed)
    objective: str = "latency",
    seconds: float = 6.0,
    batch_sizes: list[str] = ["1", "32"],  # noqa: B006  (a default is read, never changed)
    destination: Destination = "pushed",
    layout: str = "auto",
) -> None:
    """Do as `optimize`, with TensorRT engines among the candidates.

    Args:
        steps: The components, of whichever engine runs this.
        model: A trained model, the parent every candidate is compared with.
        examples: Examples with the splits train (calibration) and eval, and test where there is one (measurement).
        label: The feature that holds the truth.
        output: Which output is judged, where the model has several.
        goals: What a candidate must satisfy, such as "accuracy max_degradation 0.5%"; quality is the main metric.
        objective: What the winner is best at among those that satisfy the goals.
        seconds: How long the speed of each model is measured.
        batch_sizes: Examples in a call whose speed is measured; "1-64" is 1, 2, 4 and so on up to 64.
        destination: The folder that receives numbered versions.
        layout: How a version lies there: as its format's usual server wants it (auto), or tf_serving, triton or plain.
    """
    candidates = make(steps, model, examples, (*MENU, *ENGINES))
    asked = {"label": label, "output": output, "goals": goals, "objective": objective}
    timed = {"seconds": seconds, "batch_sizes": batch_sizes}
    prove(steps, model, candidates, examples, **asked, **timed, destination=destination, layout=layout)
