"""The compatibility tag: a JSON file next to an engine with the machine that it was built for.

It gives a clear error on another machine before TensorRT fails to load the engine.
"""

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from tfopt.artifacts.models import TAG
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.tensorrt.machine import Machine

AGAIN = "convert the model again on this machine: tfopt convert_tensorrt"


@dataclass(frozen=True)
class CompatibilityTag(Machine):
    """The machine that an engine was built for, and its limits."""

    version_compatible: bool = False  # True if later versions of TensorRT may load the engine
    largest_batch: int | None = None  # None if it is not dynamic

    @classmethod
    def read(cls, plan: Path) -> "CompatibilityTag | None":
        """Read the tag of an engine; return None if there is none, as for engines that tfopt did not build.

        Raises:
            ComponentError: If it is damaged.
        """
        file = plan.with_name(TAG)
        if not file.is_file():
            return None
        try:
            values = json.loads(file.read_text())
            if not isinstance(values, dict):
                raise ValueError(f"{type(values).__name__} instead of an object")
            return cls(**{name: values[name] for name in cls.__dataclass_fields__ if name in values})
        except (ValueError, TypeError, RecursionError) as error:
            expected = "the tag that convert_tensorrt wrote"
            raise ComponentError(f"{file}: {first_line(error)}", expected, "restore it, or convert again") from error

    def write(self, plan: Path) -> None:
        """Write the tag next to an engine."""
        plan.with_name(TAG).write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    def check(self, machine: Machine, where: str | Path) -> None:
        """Raise ComponentError unless the engine runs on a machine; log a warning for an older driver."""
        if self.compute_capability != machine.compute_capability:
            received = f"{where}: an engine for compute capability {self.compute_capability} ({self.gpu})"
            expected = f"one for {machine.compute_capability}, which this machine has ({machine.gpu})"
            raise ComponentError(received, expected, AGAIN)
        built, installed = _numbers(self.tensorrt), _numbers(machine.tensorrt)
        if built != installed and not (self.version_compatible and installed > built):
            needs = "that version or a later one" if self.version_compatible else "exactly that version"
            once = "; with version_compatible=True later versions also load it" if built < installed else ""
            received = f"{where}: an engine of TensorRT {self.tensorrt}, which needs {needs}"
            expected = f"one for TensorRT {machine.tensorrt}, which this machine has"
            raise ComponentError(received, expected, f"{AGAIN}{once}")
        if _numbers(self.driver) > _numbers(machine.driver):
            logging.getLogger(__name__).warning(
                "%s was built with driver %s, and this machine has the older %s", where, self.driver, machine.driver
            )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))
