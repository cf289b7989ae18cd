"""The metadata server of KFP: ML Metadata's own store, of its Python package, behind its gRPC service.

Run it with ``python -m tests.kfp_backend.metadata_server HOST:PORT DATABASE``.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from ml_metadata.metadata_store.pywrap.metadata_store_extension import metadata_store
from ml_metadata.proto import metadata_store_pb2

STATUSES = {status.value[0]: status for status in grpc.StatusCode}


class MetadataService(grpc.GenericRpcHandler):
    """Pass the bytes of every request to the function of that name in ML Metadata's library."""

    def __init__(self, database: str) -> None:
        config = metadata_store_pb2.ConnectionConfig()
        config.sqlite.filename_uri = database
        self._store = metadata_store.CreateMetadataStore(
            config.SerializeToString(), metadata_store_pb2.MigrationOptions().SerializeToString()
        )

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(self._method(details.method.rpartition("/")[2]))

    def _method(self, name: str) -> Callable[[bytes, Any], bytes]:
        def call(request: bytes, context: grpc.ServicerContext) -> bytes:
            response, message, code = getattr(metadata_store, name)(self._store, request)
            if code:
                context.abort(STATUSES[code], message.decode())
            return response

        return call


def main(address: str, database: str) -> None:
    server = grpc.server(ThreadPoolExecutor(1), [MetadataService(database)])  # one: SQLite locks its file
    server.add_insecure_port(address)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
