"""Record TensorRT's log messages: its functions return None on failure and log the reason only."""

import functools
import logging
from typing import Any

import tensorrt as trt

from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.tensorrt.machine import INSTALL

LEVELS = {"INTERNAL_ERROR": logging.ERROR, "ERROR": logging.ERROR, "WARNING": logging.WARNING}


class Messages(trt.ILogger):  # type: ignore[misc]
    """A logger for TensorRT's classes that forwards messages to Python's logging and records ``errors``."""

    def __init__(self) -> None:
        """Create the logger."""
        trt.ILogger.__init__(self)
        self.errors: list[str] = []

    def log(self, severity: Any, msg: str) -> None:
        """Forward a message; TensorRT calls this method."""
        level = LEVELS.get(severity.name, logging.DEBUG)
        if level == logging.ERROR:
            self.errors.append(msg)
        logging.getLogger("tfopt.tensorrt").log(level, "%s", msg)

    def last_error(self, otherwise: str) -> str:
        """Return the last error in one line, or another text if there was none."""
        return " ".join(self.errors[-1].split())[:300] if self.errors else otherwise

    def create(self, kind: Any) -> Any:
        """Create a ``tensorrt.Builder`` or ``tensorrt.Runtime`` with this logger.

        Raises:
            ComponentError: If TensorRT does not start.
        """
        try:
            return kind(self)
        except TypeError as error:  # raised by the bindings if the library returns a null pointer
            received = f"TensorRT {trt.__version__} does not start: {self.last_error(first_line(error))}"
            expected = "its libraries of the same version, and a driver that is new enough for them"
            raise ComponentError(received, expected, INSTALL) from error


@functools.cache
def load_plugins() -> None:
    """Register TensorRT's plugins, which implement some ONNX operators, once per process.

    The plugins store a raw pointer to the logger, which must therefore never be freed.
    """
    trt.init_libnvinfer_plugins(_PLUGIN_MESSAGES, "")


_PLUGIN_MESSAGES = Messages()
