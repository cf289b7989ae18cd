"""The door of `optimize_graph`: what it promises."""

from typing import Annotated

from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Between, Input, Output, component
from tfopt.components.optimize_graph.pass_names import read_passes
from tfopt.declaration.parameters import Reads
from tfopt.execution.failed_models import OnFailure


@component(image="tf")
def optimize_graph(
    model: Input[SavedModel],
    optimized: Output[SavedModel],
    examples: Input[Examples] | None = None,
    *,
    passes: Annotated[list[str], Reads(read_passes, ("inference",))] = ["inference"],  # noqa: B006  (never changed)
    tolerance: Annotated[float, Between(0, 1)] | None = None,
    explain: bool = False,
    inputs: list[str] = [],  # noqa: B006  (never changed)
    outputs: list[str] = [],  # noqa: B006
    frozen_graph: bool = False,
    on_failure: OnFailure = "raise",
) -> None:
    """Rewrite the graph of a SavedModel by laws that leave its function as it is, one pass after another.

    The variables become constants; then each pass of the list is tried in its order, and the laws among them again
    until none finds anything. After every pass that changed something the model runs beside its parent, on all
    signatures: a pass that fails, or after which an output differs by more than the tolerance, is taken back and named.
    What each pass did is in the model card under ``report``: nodes by operation before and after, the error, and what
    was refused why.

    Signatures keep names, types, shapes and open dimensions; tables and assets stay. Of a Keras form nothing stays.

    Presets: ``portable``, every law of `tfopt/graph/rewrites`, whose results every exporter reads; ``inference``, these
    and those of Grappler's optimizers whose work lasts in a file and that other exporters read; ``size``, what makes
    the file smaller and no more. The first two also leave out what only checks (Assert, CheckNumerics): the answers are
    the same, but an input that the model refused is answered from then on. ``inference without:drop_assertions
    without:drop_numeric_checks`` keeps the checks.

    Args:
        model: A SavedModel of TensorFlow 1 or 2; a Keras file, which is exported first; or a frozen graph, ``.pb``,
            with ``inputs`` and ``outputs``.
        optimized: The same model with a smaller graph, without variables.
        examples: Real inputs for the comparison, found by input name; random ones are used without them.
        passes: Presets, laws and ``grappler:NAME``, in the order in which they are tried; ``without:NAME`` takes one
            out of a preset.
        tolerance: Take a pass back when an output differs by more than this fraction of its range. When not given:
            0.0001, 0.01 where the graph computes in float16, and 0.05 where in bfloat16.
        explain: Hand the model on as it is; the report says what each pass would do.
        inputs: Of a frozen graph, the nodes that are fed; they become the signature's inputs.
        outputs: Of a frozen graph, the nodes that are asked for.
        frozen_graph: Write the optimized graph alone as well, ``frozen.pb``; the model card says under ``frozen_graph``
            what its inputs and outputs are called there.
        on_failure: With ``row``, a model that cannot be made is no error: the output then says why, and evaluate,
            benchmark and select_model list it as a row that is never chosen, with the reason.

    Raises:
        ComponentError: When the model cannot be frozen or run here, or what was written answers otherwise; when the
            names of a frozen graph's ends are missing, or given for another model.

    Reference:
        Larsen and Shpeisman, "TensorFlow Graph Optimizations", 2019; the laws name theirs.
    """
    from tfopt.components.optimize_graph.optimize import Ends, optimize

    ends = Ends(inputs, outputs, frozen_graph)
    optimized.metadata |= optimize(model, optimized.path, examples, read_passes(passes), tolerance, explain, ends)
