from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Group, Input, Output, component
from tfopt.components.optimize_graph.parameters import Optimization
from tfopt.processes.subprocess_call import run_isolated


@component(image="tf", purpose="graph", model_signature=True, on_failure=True, concurrent=True)
def optimize_graph(
    model: Input[SavedModel],
    optimized: Output[SavedModel],
    examples: Input[Examples] | None = None,
    *,
    optimization: Group[Optimization],
) -> None:
    """Rewrite the graph of a SavedModel by laws that preserve its function, one pass after another.

    The variables become constants. Then the passes are tried in order, and the laws among them again until none
    applies. After every pass that changed something, all signatures are compared with the parent: a pass that fails, or
    after which an output differs by more than the tolerance, is undone and reported. Without ``fast_math``, its inputs
    include NaN, infinities, zeros of both signs, denormals, the extremes of each dtype, and no records. The model card
    lists under ``report`` for each pass the nodes by operation before and after, the error, and the refusals with their
    reasons.

    Signatures keep names, dtypes, shapes and unknown dimensions; tables and assets stay. The result has no Keras form.

    Presets: ``portable``, every law of `tfopt/graph/laws`, whose results every exporter reads; ``inference``, these
    and the optimizers of Grappler whose result can be stored and read by other exporters; ``size``, only laws that make
    the file smaller. The first two also remove checks (Assert, CheckNumerics): the outputs are the same, but inputs
    that the model refused are accepted from then on. ``inference without:drop_assertions without:drop_numeric_checks``
    preserves the checks.

    Args:
        model: A SavedModel of TensorFlow 1 or 2; a Keras file, which is exported first; or a frozen graph, ``.pb``,
            with ``inputs`` and ``outputs``. Operations of old graphs that TensorFlow has removed
            (``BatchNormWithGlobalNormalization``) become their successors.
        optimized: The same model with a smaller graph, without variables but those that it writes while it serves.
        examples: Real inputs for the comparison, matched by input name; without them, random inputs.
        optimization: Parameters of the optimization.

    Raises:
        ComponentError: If the model cannot be frozen or run here, or the outputs of the written model differ; if the
            names of inputs and outputs are missing for a frozen graph, or given for another model.

    Reference:
        Larsen and Shpeisman, "TensorFlow Graph Optimizations", 2019; the laws name theirs.
    """
    from tfopt.components.optimize_graph.optimize import optimize  # imports NumPy

    optimized.metadata |= run_isolated(
        *(optimize, model, optimized.path, examples, optimization), doing="optimizing the graph"
    )
