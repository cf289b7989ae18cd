from tfopt.artifacts import Examples, Model, StableHLOModel
from tfopt.component import Group, Input, Output, component
from tfopt.components.export_stablehlo.parameters import StableHLOConversion
from tfopt.conversion.convert import check_format, convert_in_child


@component(image="tf", purpose="conversion", memory="8Gi", model_signature=True, on_failure=True, concurrent=True)
def export_stablehlo(
    model: Input[Model],
    exported: Output[StableHLOModel],
    examples: Input[Examples] | None = None,
    *,
    conversion: Group[StableHLOConversion],
) -> None:
    """Convert a model to a StableHLO file, run it with XLA and compare it with its parent.

    StableHLO is the input language of XLA, IREE and compilers for accelerators. ``Format-Serving/model.mlirbc`` is a
    portable artifact, MLIR bytecode in the oldest version of StableHLO that has the operations of the model, which all
    newer compilers read. Its weights are constants, and its function ``main`` takes and returns tensors by position:
    ``model.json`` next to it lists their names, dtypes and shapes in this order.

    XLA's sizes are fixed. If the batch size of the model is open, the file takes ``batch_size`` records a call.

    A model with text, serialized records, or tables and hashes is converted from where these end; what is before stays
    a SavedModel in ``Format-Serving/Format-Preprocessing/``, and both run as one model (docs/tfx.md).

    Args:
        model: A SavedModel or a Keras model.
        exported: The StableHLO file.
        examples: Real inputs, matched by input name, which replace random inputs in the comparison with the parent.
        conversion: Batch size and comparison.

    Raises:
        ComponentError: If an input has an open size besides that of the batch, if XLA cannot compile an operation (the
            error lists all of them with their reasons), or if the outputs do not match the parent's outputs.
    """
    exported.metadata["name"] = "stablehlo"
    check_format(model, ("saved_model", "keras"))
    from tfopt.components.export_stablehlo.export import export  # imports NumPy

    convert_in_child(export, model, examples, exported, conversion)
