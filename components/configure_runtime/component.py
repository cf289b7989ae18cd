"""Declaration and work of the `configure_runtime` component."""

from typing import Literal

from tfopt.artifacts import SavedModel
from tfopt.component import Input, Output, component
from tfopt.keras_models.io import place_saved_model


@component(image="tf", purpose="graph", model_signature=True, on_failure=True, concurrent=True)
def configure_runtime(
    model: Input[SavedModel],
    configured: Output[SavedModel],
    *,
    onednn: Literal["on", "off", "other"] = "other",
) -> None:
    """Turn oneDNN on or off for a SavedModel, wherever it is measured and served.

    TensorFlow uses oneDNN's kernels if ``TF_ENABLE_ONEDNN_OPTS`` is 1 when it is imported. If the variable is not set,
    it uses them on CPUs with AVX512-VNNI, AVX-VNNI, AVX512-BF16 or AMX. Which setting is faster depends on the model,
    the batch size and the CPU; `benchmark` measures it.

    The graph does not change. The variable is written to the model's folder, ``assets.extra/environment.json``:
    `benchmark`, `evaluate` and `validate_serving` run the model in a process with this variable, and `push_model`
    reports that the server must be started with it.

    Args:
        model: A SavedModel or a Keras model.
        configured: The same SavedModel with the variable.
        onednn: ``other`` is the opposite of this machine's default.
    """
    from tfopt.runtimes import environment  # imports NumPy

    on = onednn == "on" or (onednn == "other" and not environment.has_onednn())
    serving = configured.path / "Format-Serving"
    place_saved_model(model, serving)
    environment.add_variables(serving, {environment.ONEDNN: str(int(on))})
    configured.metadata |= {"name": f"{model.name}, oneDNN {'on' if on else 'off'}"}
