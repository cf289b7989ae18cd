"""The door of `configure_runtime`: what it promises."""

from typing import Literal

from tfopt.artifacts import SavedModel
from tfopt.component import Input, Output, component
from tfopt.execution.failed_models import OnFailure


@component(image="tf")
def configure_runtime(
    model: Input[SavedModel],
    configured: Output[SavedModel],
    *,
    onednn: Literal["on", "off", "other"] = "other",
    on_failure: OnFailure = "raise",
) -> None:
    """Have a SavedModel measured and served by processes that are set up otherwise, with oneDNN on or off.

    TensorFlow computes with oneDNN's kernels where ``TF_ENABLE_ONEDNN_OPTS`` says so when it is imported, and where
    nobody says, on CPUs with AVX512-VNNI, AVX-VNNI, AVX512-BF16 or AMX. Which is faster depends on the model, the
    batch size and the CPU, so let `benchmark` tell.

    The graph stays as it is. The variable is written into the model's folder, ``assets.extra/environment.json``:
    `benchmark`, `evaluate` and `validate_serving` run the model in a process that has it, and `push_model` says that
    the server must be started so.

    Args:
        model: A SavedModel or a Keras model.
        configured: The same SavedModel with the variable.
        onednn: ``other`` is what this machine does not do by itself.
        on_failure: With ``row``, a model that cannot be made is no error: the output then says why, and evaluate,
            benchmark and select_model list it as a row that is never chosen, with the reason.
    """
    from tfopt.keras_models.io import place_saved_model
    from tfopt.runtimes import environment

    on = onednn == "on" or (onednn == "other" and not environment.has_onednn())
    serving = configured.path / "Format-Serving"
    place_saved_model(model, serving)
    environment.write(serving, {environment.ONEDNN: str(int(on))})
    configured.metadata |= {"name": f"{model.name}, oneDNN {'on' if on else 'off'}"}
