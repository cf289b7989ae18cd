"""The main job with a search in it: what was found last time is used again, until it no longer serves."""

from tfopt.artifacts import Files, KerasModel, PythonModule, TrainingPlan
from tfopt.component import Input
from tfopt.trace import Steps
from tfopt.model_store.last_run import Destination
from tfopt.pipelines.optimize import prove
from tfopt.pipelines.retrain import learn


def tune(
    steps: Steps,
    data: Input[Files],
    module: Input[PythonModule],
    plan: Input[TrainingPlan] | None = None,
    start: Input[KerasModel] | None = None,
    *,
    label: str = "label",
    output: str | None = None,
    pack: str | None = None,
    splits: list[str] = ["train:8", "eval:1", "test:1"],  # noqa: B006  (a default is read, never changed)
    epochs: int = 20,
    last: Destination | None = None,
    min_change: float = 0.0,
    goals: list[str] = ["quality max_degradation 1%"],  # noqa: B006  (a default is read, never changed)
    objective: str = "latency",
    formats: list[str] = ["saved_model", "tflite", "onnx", "openvino"],  # noqa: B006  (a default is read, never changed)
    trials: int = 20,
    minutes: float = 30.0,
    seconds: float = 6.0,
    batch_sizes: list[str] = ["1", "32"],  # noqa: B006  (a default is read, never changed)
    destination: Destination = "pushed",
    layout: str = "auto",
) -> None:
    """Retrain a model on fresh data, optimize it by the recipe of the last run or search a new one, prove it, push it.

    The recipe lies in the destination, beside the versions: the first run searches, the next ones try what that found
    and search again only when it misses the goals, is not proven better any more, or was not served in the end.

    Args:
        steps: The components, of whichever engine runs this.
        data: The raw data: CSV, NPZ, image folders or TFRecords.
        module: Your Python file, with build_model() and, if wanted, preprocess(features).
        plan: What profile_training measured to make this training faster.
        start: What train gave in the last blessed run: learning begins with its weights.
        label: The column or feature that holds the truth.
        output: Which output is judged, where the model has several.
        pack: Columns to pack into one feature, such as "image=28x28x1".
        splits: Names with weights: train is learnt, eval stops training and is searched on, test judges what was found.
            Without test, eval judges as well, which flatters.
        epochs: The most passes over the data; training stops earlier when it no longer improves.
        last: Without a start: the destination of earlier runs, to begin with the model behind their newest version;
            anew where there is none yet. The recipe is the last one's either way.
        min_change: With a start, what part of the examples or of their statistics, or of its loss on them, must have
            changed before it is trained again; 0 for always.
        goals: What a recipe must satisfy, such as "accuracy max_degradation 0.5%"; quality is the main metric.
        objective: What the winner is best at among those that satisfy the goals.
        formats: Which formats the winner may have; those that your server loads, when layout names one.
        trials: How many recipes a search tries at most.
        minutes: How long it searches at most.
        seconds: How long the speed of each model is measured.
        batch_sizes: Examples in a call whose speed is measured; "1-64" is 1, 2, 4 and so on up to 64.
        destination: The folder that receives numbered versions, and the recipe.
        layout: How a version lies there: as its format's usual server wants it (auto), or tf_serving, triton or plain.
    """
    given = {"plan": plan, "start": start, "epochs": epochs, "last": last, "min_change": min_change}
    examples, trained = learn(steps, data, module, label, pack, splits, **given)
    asked = {"label": label, "output": output, "goals": goals, "objective": objective}
    timed = {"seconds": seconds, "batch_sizes": batch_sizes}
    budget = {"formats": formats, "trials": trials, "minutes": minutes, "last": destination}
    found = steps.tune_recipe(model=trained, examples=examples, **asked, **timed, **budget).outputs
    kept = {"trained": trained, "recipe": found["recipe"]}
    candidates = [found["tuned"]]
    prove(steps, trained, candidates, examples, **asked, **timed, destination=destination, layout=layout, **kept)
