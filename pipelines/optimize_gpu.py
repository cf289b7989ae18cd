"""The pipeline `optimize` for NVIDIA GPUs: TensorFlow's graph in float32 and float16, with XLA, and TensorRT engines.

TensorFlow chooses the layout of convolutions on a GPU by a rule; the candidate with a fixed layout keeps the graph's.
A GPU that has no float8 is refused before any work, and that engine is reported as a failed model.

It is a pipeline of its own because a DAG is fixed before it runs: on Kubeflow a step that requests a GPU waits until
there is one, for ever in a cluster without GPUs. On a machine without a GPU each engine is reported as a failed model.
Formats whose runtimes compute on CPUs are no candidates: the GPU would wait while they are measured, and each further
candidate makes the intervals of all wider.
"""

from tfopt.artifacts import Examples, Files, PythonModule, SavedModel
from tfopt.component import Group, Input
from tfopt.pipelines.optimize import Loading, Replaying, Selection, make_candidates, replay_inputs, select_and_push
from tfopt.trace import Inherited, Steps

GRAPHS = ("folded", "optimized", "fixed_layout", "compiled", "cast float16", "compiled float16")
ENGINES = tuple(f"tensorrt {precision}" for precision in ("fp32", "tf32", "fp16", "bf16", "int8", "fp8"))


def optimize_gpu(
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
    """Make a trained model faster on an NVIDIA GPU, measure every candidate, and push the selected one.

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
    candidates = make_candidates(steps, model, examples, (*GRAPHS, *ENGINES), loading)
    replay = replay_inputs(recording, replaying)
    return select_and_push(steps, model, candidates, examples, selection, loading, module, replay)
