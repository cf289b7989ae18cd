"""Optimize a trained model for CPUs: make every candidate, measure all against the model, select one and push it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from tfopt.artifacts import Examples, Files, PythonModule, SavedModel
from tfopt.component import Between, Group, Input
from tfopt.model_store.warm_start import Destination
from tfopt.trace import Inherited, Steps

# The candidates: a kind, and the precision of an exported one.
FORMATS = (
    *("folded", "tflite float32", "tflite dynamic", "tflite int8"),
    *("onnx float32", "onnx int8", "openvino float32", "openvino int8"),
)
CANDIDATES = (
    *("folded", "optimized", "configured", "compiled", "quantized", "tflite float16", "onnx dynamic"),
    *FORMATS[1:],
)


MOST_SLOWDOWN = 5.0  # of XLA: `benchmark` would not measure a model that is slower, and `evaluate` would take minutes


class Loading(TypedDict, total=False):
    """Parameters of every step that loads a model."""

    signature: Inherited
    trust_model_code: Inherited


@dataclass(frozen=True)
class Selection:
    """Parameters of the measurement, the selection and the push.

    Attributes:
        goals: Conditions that a candidate must meet, such as "accuracy max_degradation 0.5%".
            Quality is the main metric.
        layout: The serving layout of a pushed version: that of its format's usual server (auto), tf_serving, triton
            or plain. Only formats that this server loads are selected.
        destination: The folder, or address in an object store, that receives numbered versions.
        keep: Number of versions that remain after a push, the newest; 0 for all.
    """

    label: Inherited
    output: Inherited
    metrics: Inherited
    max_skipped: Inherited
    slices: Inherited
    confidence: Inherited
    slice_records: Inherited
    objective: Inherited
    seconds: Inherited
    batch_sizes: Inherited
    max_p99_ms: Inherited
    rate: Inherited
    price: Inherited
    device: Inherited
    layout: Inherited
    canary: Inherited
    signing_key: Inherited
    register: Inherited
    model_name: Inherited
    destination_uri: Inherited
    goals: Inherited = ("quality max_degradation 1%",)
    destination: Destination = "pushed"
    keep: Annotated[int, Between(0)] = 0  # without None, which KFP's local engine cannot pass on


@dataclass(frozen=True)
class Replaying:
    """Parameters of the replay of recorded requests, without effect unless there is a recording.

    Attributes:
        replay_goals: Conditions that the selected model must meet in the replay, on ``disagreement`` (of its answers
            with those of the newest version in ``destination``), ``p50``, ``p90`` and ``p99`` (of latency in
            milliseconds), such as "disagreement max 0.5%" and "p99 max_regression 10%".
        replay_slices: Names of slices of the recording, for goals such as "disagreement[city=*] max 2%".
        replay_seconds: Duration for which requests are sent to each of the two models to measure latency.
        replay_rate: Requests per second of the replay; 0 for the recorded times.
    """

    replay_goals: Inherited
    replay_slices: Inherited
    replay_seconds: Inherited
    replay_rate: Inherited


def optimize(
    steps: Steps,
    model: Input[SavedModel],
    examples: Input[Examples],
    module: Input[PythonModule] | None = None,
    recording: Input[Files] | None = None,
    *,
    selection: Group[Selection],
    replaying: Group[Replaying],
    signature: Inherited,
    trust_model_code: Inherited,
) -> dict[str, object]:
    """Make a trained model smaller and faster on CPUs, measure every candidate, and push the selected one.

    Args:
        steps: Adds the steps.
        model: A trained model: the baseline that every candidate is compared with.
        examples: Examples with the splits train (calibration) and eval, and test if there is one (measurement).
        module: Your Python file with functions for ``metrics``.
        recording: Requests to the served version, which the selected model must answer as well before it is pushed.
        selection: Parameters of the measurement, the selection and the push.
        replaying: Parameters of the replay of the recording.
        signature: Name of the signature that is converted, measured and served, in formats with signatures.
        trust_model_code: Run Python code that the Keras form of ``model`` contains.
    """
    loading = Loading(signature=signature, trust_model_code=trust_model_code)
    candidates = make_candidates(steps, model, examples, CANDIDATES, loading)
    replay = replay_inputs(recording, replaying)
    return select_and_push(steps, model, candidates, examples, selection, loading, module, replay)


def make_candidates(
    steps: Steps, model: Any, examples: Any, names: tuple[str, ...], loading: Loading | None = None
) -> list[Any]:
    """Make candidates from a model; one that cannot be made is reported and does not end the run.

    The names are any of `CANDIDATES`, or ``cast``, ``compiled`` (after that cast) and ``tensorrt`` with a precision, or
    ``fixed_layout``.
    The examples are for calibration and verification. ``loading`` has the values of ``signature`` and
    ``trust_model_code`` of each step.
    """
    loading = loading or {}
    options = {"examples": examples, "on_failure": "row", **loading}
    models = {"folded": steps.fold_batch_norm(model=model, **options).outputs["folded"]}
    if {"optimized", "configured", "compiled", "quantized", "cast float16"} & set(names):
        models["optimized"] = steps.optimize_graph(model=models["folded"], **options).outputs["optimized"]
    for name in names:
        kind, _, precision = name.partition(" ")
        if name == "configured":
            step = steps.configure_runtime(model=models["optimized"], on_failure="row", **loading)
        elif kind == "compiled":
            id = f"compile_xla_{precision}" if precision else "compile_xla"
            parent = models[f"cast {precision}" if precision else "optimized"]
            step = steps.compile_xla(
                id=id, model=parent, batch_sizes=["1", "32"], max_slowdown=MOST_SLOWDOWN, **options
            )
        elif name == "fixed_layout":
            parameters = {"passes": ["strip_unused"], "fixed_layout": True, **options}
            step = steps.optimize_graph(id="optimize_graph_fixed_layout", model=models["optimized"], **parameters)
        elif name == "quantized":
            step = steps.quantize_graph(model=models["optimized"], **options)
        elif precision:
            component = {"cast": "cast_precision", "tensorrt": "convert_tensorrt"}.get(kind, f"export_{kind}")
            parent = models["optimized" if kind == "cast" else "folded"]
            step = getattr(steps, component)(
                id=f"{component}_{precision}", model=parent, precision=precision, **options
            )
        else:
            continue
        (models[name],) = step.outputs.values()
    return [models[name] for name in names]


def select_and_push(
    steps: Steps,
    model: Any,
    candidates: list[Any],
    examples: Any,
    selection: Selection,
    loading: Loading | None = None,
    module: Any = None,
    replay: Any = None,
    **warm_start: Any,
) -> dict[str, object]:
    """Measure candidates against the baseline, select one, load it as its server would, and push it.

    If the selected model cannot be served, the baseline is pushed instead. Return the outputs of the selection. The
    module has functions for ``metrics``. ``replay`` are inputs and parameters of a step `replay`, which the selected
    model must pass, too (`replay_inputs`); the baseline is then not pushed instead. ``warm_start`` are the artifacts
    ``trained`` and ``recipe``, which `push_model` stores for the next run.
    """
    loading = loading or {}
    evaluated = _evaluate(steps, model, candidates, examples, selection, loading, module)
    return _select_one(steps, model, candidates, examples, selection, loading, evaluated, replay, **warm_start)


def select_for_kinds(
    steps: Steps,
    model: Any,
    candidates: list[Any],
    examples: Any,
    selections: Mapping[str, Selection],
    loading: Loading | None = None,
    module: Any = None,
) -> dict[str, object]:
    """Evaluate candidates once; then for each kind of machine measure them on it, select one model and push it.

    The ids of the steps of a kind end with its name, as ``benchmark_board``, so that options of Kubeflow place them
    (``benchmark_board:node.LABEL=VALUE``). Elsewhere ``device`` of a selection is a machine of that kind. Each
    selection needs a destination of its own. Return the outputs of the selections, such as ``selected_board``.
    """
    loading = loading or {}
    evaluated = _evaluate(steps, model, candidates, examples, next(iter(selections.values())), loading, module)
    outputs: dict[str, object] = {}
    for kind, selection in selections.items():
        selected = _select_one(steps, model, candidates, examples, selection, loading, evaluated, suffix=f"_{kind}")
        outputs |= {f"{name}_{kind}": output for name, output in selected.items()}
    return outputs


def _evaluate(
    steps: Steps, model: Any, candidates: list[Any], examples: Any, selection: Selection, loading: Loading, module: Any
) -> Any:
    quality = values_of(selection, "label", "output", "metrics", "slices", "max_skipped")
    step = steps.evaluate(baseline=model, candidates=candidates, examples=examples, module=module, **quality, **loading)
    return step.outputs["evaluation"]


def _select_one(
    steps: Steps,
    model: Any,
    candidates: list[Any],
    examples: Any,
    selection: Selection,
    loading: Loading,
    evaluated: Any,
    replay: Any = None,
    *,
    suffix: str = "",
    **warm_start: Any,
) -> dict[str, object]:
    """Measure the speed of evaluated candidates, select one, test and push it; the suffix ends the ids of the steps."""
    speed = values_of(selection, "seconds", "batch_sizes", "objective", "max_p99_ms", "rate", "price", "device")
    compared = {"baseline": model, "candidates": candidates}
    measured = steps.benchmark(id=f"benchmark{suffix}", **compared, examples=examples, **speed, **loading)
    selected = steps.select_model(
        id=f"select_model{suffix}",
        **compared,
        evaluation=evaluated,
        benchmark=measured.outputs["benchmark"],
        **values_of(selection, "goals", "confidence", "slice_records", "objective", "destination", "layout"),
    )
    loaded = {"model": selected.outputs["selected"], **values_of(selection, "destination", "layout"), **loading}
    pushed = {**loaded, "examples": examples, "fallback": model}
    tested = steps.validate_serving(id=f"validate_serving{suffix}", **pushed).outputs["infra_blessing"]
    if replay:
        tested = steps.replay(**loaded, tested=tested, **replay).outputs["infra_blessing"]
    steps.push_model(
        id=f"push_model{suffix}",
        **values_of(selection, "keep", "canary", "signing_key", "register", "model_name", "destination_uri"),
        blessing=selected.outputs["blessing"],
        infra_blessing=tested,
        decision=selected.outputs["decision"],
        **pushed,
        **warm_start,
    )
    return dict(selected.outputs)


def replay_inputs(recording: Any, replaying: Replaying) -> dict[str, object]:
    """Return ``replay`` of `select_and_push`; without the recording, the runs of the pipeline have no such step."""
    names = ("goals", "slices", "seconds", "rate")
    return {"recording": recording, **{name: getattr(replaying, f"replay_{name}") for name in names}}


def values_of(group: object, *names: str) -> dict[str, Any]:
    """Return parameters of a group, to pass them to a step that gives them the same names."""
    return {name: getattr(group, name) for name in names}
