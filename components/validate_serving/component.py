import logging

from tfopt.artifacts import Examples, Files, InfraBlessing, Model
from tfopt.component import Group, Input, Output, component
from tfopt.components.validate_serving.parameters import ServingTest
from tfopt.reports.serving_report import ServingReport
from tfopt.serving.version_manifest import verify_version


@component(image="tf", purpose="serving", cache="local", cpu=2, model_signature=True)
def validate_serving(
    model: Input[Model],
    infra_blessing: Output[InfraBlessing],
    examples: Input[Examples] | None = None,
    fallback: Input[Model] | None = None,
    recording: Input[Files] | None = None,
    *,
    test: Group[ServingTest],
) -> None:
    """Load a model as its server will, send requests to it, and decide whether it may be pushed.

    The model is laid out as `push_model` would push it, and loaded in a separate process with the loader of its server:
    TensorFlow Serving's model server if the machine has `tensorflow_model_server`, Triton if it has `tritonserver` with
    the backend of the format (each with its client, ``tensorflow-serving-api`` or ``tritonclient[grpc]``), else the
    same loader through official APIs: for a SavedModel a session with the tag serve, as both servers run it, for other
    formats LiteRT, ONNX Runtime, OpenVINO or TensorRT. Names, dtypes and shapes must be the signature's. Outputs
    must be finite and equal the model's outside of the layout. Warm-up requests are replayed, and a Triton
    configuration is compared with the signature.

    A model that fails is not blessed, with the reason; the step then succeeds. TFX's Pusher accepts the blessing too.

    Args:
        model: The model to push, in any format.
        infra_blessing: ``infra_blessing.json``: the result for each model, with all checks and measurements.
        examples: Source of the requests, warm-up requests included; random values if missing.
        fallback: The parent that would be pushed instead of the model; tested independently.
        recording: Recorded requests, in the forms that `replay` reads. Latency is measured with them, too, each sent at
            its recorded time or, with a ``rate``, at those of ``arrivals``; from the beginning again where it ends.
        test: Layout, requests and limits.

    Raises:
        ComponentError: If a version differs from its manifest or signature, the layout cannot hold the format, the
            examples or the recording do not fit the model, the recording has no times and there is no rate, or the disk
            is full.
    """
    from tfopt.components.validate_serving.server_check import validate  # imports NumPy

    if test.verify or test.public_key:
        verify_version(model.path, test.public_key)
    requests = recording.path if recording else None
    served = [validate(model, examples, requests, test)]
    if fallback is not None:
        served.append(validate(fallback, examples, requests, test, is_fallback=True))
    for row in served:
        logging.getLogger(__name__).info("%s: %s", row.name, row.reason)
    result = served[0]
    infra_blessing.write(ServingReport(result.blessed, result.reason, served))
    (infra_blessing.path / ("INFRA_BLESSED" if result.blessed else "INFRA_NOT_BLESSED")).touch()
    infra_blessing.metadata |= {"blessed": int(result.blessed), "reason": result.reason, "server": result.server}
    if latency := result.latency:
        infra_blessing.metadata |= {
            "p50_ms": latency.p50_ms,
            "p99_ms": latency.p99_ms,
            "concurrency": latency.concurrency,
        }
    if at_rate := result.at_rate:
        infra_blessing.metadata |= {"p99_ms_at_rate": at_rate.p99_ms, "replicas_needed": at_rate.replicas_needed or 0}
