"""A replacement of TensorFlow Serving's model server for tests, with its flags, variables and gRPC services."""

import argparse
import os
from concurrent import futures
from pathlib import Path

import grpc
import tensorflow as tf
from google.protobuf.any_pb2 import Any
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

parser = argparse.ArgumentParser()
parser.add_argument("--host", default="localhost")
parser.add_argument("--port", type=int, default=8500)
# TensorFlow Serving's image takes the two from the environment, and the folder of all models.
parser.add_argument("--model_name", default=os.environ.get("MODEL_NAME", "model"))
parser.add_argument("--model_base_path", type=Path)
flags = parser.parse_args()
base_path = flags.model_base_path or Path(os.environ.get("MODEL_BASE_PATH", "/models"), flags.model_name)

session = tf.compat.v1.Session(graph=tf.Graph())
loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(base_path / "1"))


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """The prediction service for one version of one model."""

    def GetModelMetadata(self, request, context):  # noqa: N802  (gRPC's name)
        """Return the signatures."""
        _check_name(request, context)
        signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=dict(loaded.signature_def))
        packed = Any()
        packed.Pack(signatures)
        return get_model_metadata_pb2.GetModelMetadataResponse(metadata={"signature_def": packed})

    def Predict(self, request, context):  # noqa: N802  (gRPC's name)
        """Return the outputs of the requested signature."""
        _check_name(request, context)
        signature = loaded.signature_def[request.model_spec.signature_name or "serving_default"]
        feed = {signature.inputs[name].name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        try:
            arrays = session.run({name: info.name for name, info in signature.outputs.items()}, feed)
        except tf.errors.InvalidArgumentError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        outputs = {name: tf.make_tensor_proto(array) for name, array in arrays.items()}
        return predict_pb2.PredictResponse(outputs=outputs)


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """The service that says whether the version is loaded."""

    def GetModelStatus(self, request, context):  # noqa: N802  (gRPC's name)
        """Return the state of the version: it is available, because it is loaded before the server starts."""
        _check_name(request, context)
        state = get_model_status_pb2.ModelVersionStatus.State.AVAILABLE
        version = get_model_status_pb2.ModelVersionStatus(version=1, state=state)
        return get_model_status_pb2.GetModelStatusResponse(model_version_status=[version])


def _check_name(request, context) -> None:
    if request.model_spec.name != flags.model_name:
        context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {request.model_spec.name}")


server = grpc.server(futures.ThreadPoolExecutor(4))
prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(PredictionService(), server)
model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(), server)
server.add_insecure_port(f"{flags.host}:{flags.port}")
server.start()
server.wait_for_termination()
