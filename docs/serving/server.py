"""Serve the newest version of a destination with LitServe: python server.py pushed [PORT].

The model may have any format: tfopt's runtime of the format runs it. Requests and responses are JSON, by input name.
"""

import sys
from pathlib import Path
from typing import Any

import litserve
import numpy as np

from tfopt import runtimes
from tfopt.artifacts import Model


class NewestVersion(litserve.LitAPI):
    """The newest version in the folder; one process calls it, so it need not be thread-safe."""

    def __init__(self, destination: str) -> None:
        """Refer to a folder of versions."""
        super().__init__()
        self.destination = Path(destination)

    def setup(self, device: str) -> None:
        """Load the version."""
        versions = [path for path in self.destination.iterdir() if path.name.isdecimal()]
        self.version = max(versions, key=lambda path: int(path.name))
        self.model = runtimes.load(Model.open(self.version))

    def decode_request(self, request: dict[str, Any]) -> dict[str, np.ndarray]:
        """Convert lists to arrays of the types that the model takes."""
        return {name: np.asarray(request[name], spec.dtype) for name, spec in self.model.inputs.items()}

    def predict(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model."""
        return self.model.run(inputs)

    def encode_response(self, outputs: dict[str, np.ndarray]) -> dict[str, Any]:
        """Convert the outputs to lists, and add the version that computed them."""
        return {"version": int(self.version.name), **{name: array.tolist() for name, array in outputs.items()}}


if __name__ == "__main__":
    api = NewestVersion(sys.argv[1])
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    litserve.LitServer(api, accelerator="cpu").run(host="127.0.0.1", port=port, generate_client_file=False)
