"""A console that is ours: what TensorFlow, TFX and Beam say goes to a file."""

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tfopt.errors import ComponentError


@contextlib.contextmanager
def libraries_said_to(log: Path) -> Iterator[None]:
    """Send it to a file, and our own progress to both; native code writes to the descriptor."""
    log.parent.mkdir(parents=True, exist_ok=True)
    terminal = os.dup(2)
    with log.open("a") as stream, os.fdopen(terminal, "w", buffering=1) as ours:
        os.dup2(stream.fileno(), 2)
        handler = logging.StreamHandler(stream)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        log_of_ours = logging.getLogger("tfopt")
        root = logging.getLogger()
        before, before_root = log_of_ours.handlers[:], root.handlers[:]
        progress = logging.StreamHandler(ours)
        progress.setFormatter(logging.Formatter("%(message)s"))
        log_of_ours.handlers[:] = [found for found in before if type(found) is not logging.StreamHandler]
        log_of_ours.handlers += [progress, handler]
        root.handlers[:] = [handler]
        _silence_absl()
        try:
            yield
        finally:
            log_of_ours.handlers[:] = before
            root.handlers[:] = before_root
            os.dup2(terminal, 2)


@contextlib.contextmanager
def libraries_said_aside() -> Iterator[None]:
    """Send it to a file that is thrown away, or named where something went wrong that we have no words for."""
    descriptor, name = tempfile.mkstemp(prefix="tfopt-", suffix=".log")
    os.close(descriptor)
    keep = False
    try:
        with libraries_said_to(Path(name)):
            yield
    except ComponentError:
        raise
    except Exception:
        keep = True
        print(f"tfopt: what the libraries said is in {name}", file=sys.stderr)
        raise
    finally:
        if not keep:
            Path(name).unlink()


def _silence_absl() -> None:
    """It would write beside our handler; it comes with TensorFlow, and not everybody has that."""
    with contextlib.suppress(ImportError):
        from absl import logging as absl_logging

        absl_logging.get_absl_handler().setLevel(logging.CRITICAL)
