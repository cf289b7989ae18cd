from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Group, Input, Output, component
from tfopt.components.compile_xla.parameters import Settings


@component(image="tf", purpose="graph", model_signature=True, on_failure=True)
def compile_xla(
    model: Input[SavedModel],
    compiled: Output[SavedModel],
    examples: Input[Examples] | None = None,
    *,
    settings: Group[Settings],
) -> None:
    """Compile each signature of a model with XLA, entirely or in clusters, wherever the model is loaded.

    The signatures keep their names, inputs and outputs. The file marks what to compile, so that any TensorFlow compiles
    it at the first call of each input shape. That takes seconds. TensorFlow Serving does it before it serves, with the
    warm-up requests in ``assets.extra``, one for each batch size. Compile time, load time and the time of later calls
    are measured in a fresh process, next to the parent's; see ``report`` in the model card.

    On inputs with NaN, infinities, denormals or extreme integers, XLA's kernels may return something else than those of
    TensorFlow: the largest of numbers with a NaN among them, for example. ``special_values`` in the report lists such
    outputs.

    XLA makes some models faster and others several times slower, above all on CPUs: compare the result with its parent
    by `benchmark`. The result is frozen: it has no variables.

    The compiled programs for each batch size can be stored with the model. TensorFlow reads them instead of compiling
    if ``TF_XLA_FLAGS`` has the value from the model card before the process starts (TensorFlow does not accept a path
    with a space there). TensorFlow and the kind of processor must be the same as in this run: on another processor the
    programs may crash.

    Args:
        model: A SavedModel or a Keras model.
        compiled: The same model, which is compiled when it is called.
        examples: Real inputs for the comparison and the warm-up, matched by input name; without them, random inputs.
        settings: Parameters of the compilation.

    Raises:
        ComponentError: If an operation of a whole signature cannot be compiled (the error lists all of them with their
            reasons), XLA compiles no cluster, the model cannot be frozen or run, or the outputs differ from the
            parent's.
    """
    settings.check()
    from tfopt.components.compile_xla.compile import compile_model  # imports NumPy

    compiled.metadata |= compile_model(model, compiled.path, examples, settings)
