"""TensorFlow Serving's model server, if the machine has it, with a gRPC client.

Reference: tensorflow.org/tfx/serving/api_rest and its `PredictionService`.
"""

import contextlib
import importlib.util
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.data.text_inputs import tensor_specs
from tfopt.runtimes import Arrays
from tfopt.serving.servers import Server, ServerProgram, free_port, start_server
from tfopt.serving.warm_up import predict_request

NAME = "tensorflow_model_server"


def find_program(format: str) -> str | None:
    """Return the path of the server; None if it or its client is not installed, or the format is no SavedModel."""
    has_client = all(importlib.util.find_spec(package) for package in ("grpc", "tensorflow_serving"))
    return shutil.which(NAME) if has_client and format == "saved_model" else None


@contextlib.contextmanager
def run_server(program: str, root: Path, signature: str, deadline: float) -> Iterator[Server]:
    """Start the server on the versions below ``root``, wait until it serves one, and stop it at the end.

    At the deadline, a version must be available after its warm-up requests; see `start_server` for errors.
    """
    import grpc
    from tensorflow_serving.apis import prediction_service_pb2_grpc

    port = free_port()
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    service = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(f"localhost:{port}", options))
    flags = (f"--port={port}", f"--model_name={root.name}", f"--model_base_path={root}")

    def not_ready() -> str | None:
        # A gRPC error holds locks, so it must not leave this function.
        try:
            _read_signature(service, root.name, signature)
        except grpc.RpcError as error:
            return str(error.details())
        return None

    with start_server(program, *flags, not_ready=not_ready, deadline=deadline):
        inputs, outputs = _read_signature(service, root.name, signature)
        client = partial(_predict, service, root.name, signature)
        yield Server("TensorFlow Serving", inputs, outputs, lambda: client)  # it is thread-safe


def _read_signature(service: Any, model: str, signature: str) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec]]:
    """Return the inputs and outputs of a signature, as the server reports them."""
    from tensorflow_serving.apis import get_model_metadata_pb2

    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = model
    signatures = get_model_metadata_pb2.SignatureDefMap()
    service.GetModelMetadata(request, timeout=10).metadata["signature_def"].Unpack(signatures)
    definition = signatures.signature_def[signature]
    return tensor_specs(definition.inputs), tensor_specs(definition.outputs)


def _predict(service: Any, model: str, signature: str, arrays: Arrays) -> dict[str, NDArray[Any]]:
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest()
    request.ParseFromString(predict_request(dict(arrays), model, signature).SerializeToString())
    response = service.Predict(request, timeout=60)
    return {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}


PROGRAM = ServerProgram(find_program, run_server)
