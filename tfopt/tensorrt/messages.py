"""What TensorRT says while it works: kept, since its functions return None and tell the reason to a logger only."""

import functools
import logging
from typing import Any

import tensorrt as trt

from tfopt.errors import ComponentError, first_line
from tfopt.tensorrt.machine import INSTALL

LEVELS = {"INTERNAL_ERROR": logging.ERROR, "ERROR": logging.ERROR, "WARNING": logging.WARNING}


class Messages:
    """A logger for TensorRT that passes on what it says and remembers the errors.

    Attributes:
        logger: What TensorRT's classes take.
    """

    def __init__(self) -> None:
        """Start without errors."""
        self.errors: list[str] = []
        self.logger = _Logger(self.errors)

    def last(self, otherwise: str) -> str:
        """The last error, in a line."""
        return " ".join(self.errors[-1].split())[:300] if self.errors else otherwise

    def started(self, kind: Any) -> Any:
        """A ``tensorrt.Builder`` or ``tensorrt.Runtime`` that talks to this logger.

        Raises:
            ComponentError: When TensorRT does not start.
        """
        try:
            return kind(self.logger)
        except TypeError as error:  # all that its bindings make of a library that gives nothing
            raise ComponentError(
                f"TensorRT {trt.__version__} does not start: {self.last(first_line(error))}",
                "its libraries of the same version, and a driver that is new enough for them",
                INSTALL,
            ) from error


@functools.cache
def load_plugins() -> None:
    """Let TensorRT have its plugins, which some operators of ONNX are; once in a process.

    They keep a bare pointer to the logger that they are given last, which must therefore never be freed.
    """
    trt.init_libnvinfer_plugins(_OF_PLUGINS.logger, "")


class _Logger(trt.ILogger):  # type: ignore[misc]
    def __init__(self, errors: list[str]) -> None:
        trt.ILogger.__init__(self)
        self._errors = errors

    def log(self, severity: Any, msg: str) -> None:
        level = LEVELS.get(severity.name, logging.DEBUG)
        if level == logging.ERROR:
            self._errors.append(msg)
        logging.getLogger("tfopt.tensorrt").log(level, "%s", msg)


_OF_PLUGINS = Messages()
