import logging
from typing import Annotated

from tfopt.artifacts import Examples, Model, Sensitivities
from tfopt.component import Between, Input, Output, component
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_in_child
from tfopt.training.checkpointing.stored_measurements import create_local_folders


@component(image="tf", purpose="measurement", memory="8Gi", model_signature=True)
def measure_sensitivities(
    model: Input[Model],
    examples: Input[Examples],
    sensitivities: Output[Sensitivities],
    *,
    label: str | None = None,
    records: Annotated[int, Between(2)] = 256,
    split: str = "train",
    seed: int = 0,
    minutes: Annotated[float, Between(0)] = 10.0,
    checkpoints: str | None = None,
) -> None:
    """Measure the loss that each layer of a model adds in each precision, for searches of a mix of precisions.

    Of each layer, the kernel and the activation that it reads are rounded alone, in the frozen float graph: weights to
    int4 and int8 (with a scale for each output channel), float16 and bfloat16, activations to int8 (one scale),
    dynamic (int8 with a scale for each record) and int16. The loss is the divergence of the outputs from those of the
    float model; with labels, also the increase of the task's loss, which is noisier. No runtime is involved, so the
    same table serves `export_tflite`, `export_onnx` and `convert_tensorrt` with ``max_degradation``, and the mixes of
    `export_openvino`: if the lowest precision misses the limit, they continue with the mix that it predicts. It takes
    longer than one search saves, so it pays for a smaller mix, or for several searches. `quantize` takes its order with
    ``weight_bits``. In int8, `export_openvino` does not take it: NNCF's own ranking gave better files
    (docs/benchmarks.md).

    The precisions that searches need most, and layers with many weights, are measured first. Layers in the bodies of
    loops, and operations without weights, are not measured; the exporters measure these in their own files.

    Args:
        model: A SavedModel or a Keras model with float weights.
        examples: Real inputs, matched by input name, and the label if there is one.
        sensitivities: ``sensitivities.json``, and ``report.html`` with a picture.
        label: The feature with the label. By default the one that `prepare_examples` recorded, if there is one.
        records: Number of records to measure on; fewer if they are large, such as images.
        split: The split that the model was trained on. The losses are measured on another one if there is one.
        seed: Seed for drawing the records.
        minutes: Time budget of the measurement. The report lists what was not measured.
        checkpoints: A folder that outlives the step (a mounted volume, or an address such as ``gs://BUCKET/FOLDER``),
            where each measured loss is saved until the report is written: the same step continues there after a
            kill. When not given: no checkpoints.

    Raises:
        ComponentError: If the model cannot be frozen, has no layer with float weights, or does not fit the examples.

    Reference:
        Dong et al., "HAWQ-V2: Hessian Aware trace-Weighted Quantization of Neural Networks", NeurIPS 2020; Nagel et
        al., "A White Paper on Neural Network Quantization", 2021, section 3.6.
    """
    examples.split(split)
    if not model.saved_model and not model.keras:
        received = f"{model.uri}: only a {model.format} model"
        raise ComponentError(received, "a SavedModel or a Keras model", "pass the model that it was converted from")
    from tfopt.components.measure_sensitivities.measurement import Settings, measure, open_progress  # imports NumPy
    from tfopt.components.measure_sensitivities.report import describe, render_html

    settings = Settings(label, records, split, seed, 60 * minutes, checkpoints)
    local = create_local_folders(checkpoints)
    report = run_in_child(measure, model, examples, settings, doing="measuring sensitivities", writes=local)
    sensitivities.write(report)
    (sensitivities.path / Sensitivities.page).write_text(render_html(report), encoding="utf-8")
    open_progress(model, examples, settings).remove()
    sensitivities.metadata |= {"layers": len(report.layers), "seconds": report.seconds}
    logging.getLogger(__name__).info("%s", describe(report))
