"""A replacement of TensorFlow Serving's model server for tests, with its flags and its gRPC service."""

import argparse
from concurrent import futures
from pathlib import Path

import grpc
import tensorflow as tf
from google.protobuf.any_pb2 import Any
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2, prediction_service_pb2_grpc

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
parser.add_argument("--model_name")
parser.add_argument("--model_base_path", type=Path)
flags = parser.parse_args()

session = tf.compat.v1.Session(graph=tf.Graph())
loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(flags.model_base_path / "1"))


class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
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
        signature = loaded.signature_def[request.model_spec.signature_name]
        feed = {signature.inputs[name].name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        arrays = session.run({name: info.name for name, info in signature.outputs.items()}, feed)
        outputs = {name: tf.make_tensor_proto(array) for name, array in arrays.items()}
        return predict_pb2.PredictResponse(outputs=outputs)


def _check_name(request, context) -> None:
    if request.model_spec.name != flags.model_name:
        context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {request.model_spec.name}")


server = grpc.server(futures.ThreadPoolExecutor(4))
prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Service(), server)
server.add_insecure_port(f"localhost:{flags.port}")
server.start()
server.wait_for_termination()
