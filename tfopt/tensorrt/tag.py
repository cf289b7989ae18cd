"""What an engine was built for, beside it as JSON, so that a wrong machine is told before TensorRT is asked."""

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfopt.artifacts.models import TAG
from tfopt.errors import ComponentError, first_line
from tfopt.tensorrt.machine import Machine

AGAIN = "convert the model again on this machine: tfopt convert_tensorrt"


@dataclass(frozen=True)
class Tag:
    """What an engine was built for.

    Attributes:
        tensorrt: As of the `Machine` it was built on, like the next three.
        version_compatible: Whether later versions of TensorRT may load it.
        largest_batch: How many records it takes at once, where its batch is open; None in tags that do not say it.
    """

    tensorrt: str
    compute_capability: str
    gpu: str
    driver: str
    version_compatible: bool = False
    largest_batch: int | None = None

    @classmethod
    def of(cls, machine: Machine, *, version_compatible: bool, largest_batch: int | None = None) -> "Tag":
        """The tag of an engine built here and now."""
        return cls(**asdict(machine), version_compatible=version_compatible, largest_batch=largest_batch)

    @classmethod
    def beside(cls, plan: Path) -> "Tag | None":
        """Read the tag that lies beside an engine; None where there is none, as for engines made elsewhere.

        Raises:
            ComponentError: When it is damaged.
        """
        file = plan.with_name(TAG)
        if not file.is_file():
            return None
        try:
            return cls(**_known(json.loads(file.read_text())))
        except (ValueError, TypeError) as error:
            raise ComponentError(
                f"{file}: {first_line(error)}", "the tag that convert_tensorrt wrote", "restore it, or convert again"
            ) from error

    def write(self, plan: Path) -> None:
        """Put it beside an engine."""
        plan.with_name(TAG).write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    def check(self, machine: Machine, where: str | Path) -> None:
        """Raise ComponentError unless the engine was built for such a machine; an older driver is only warned of."""
        if self.compute_capability != machine.compute_capability:
            raise ComponentError(
                f"{where}: an engine for compute capability {self.compute_capability} ({self.gpu})",
                f"one for {machine.compute_capability}, which this machine has ({machine.gpu})",
                AGAIN,
            )
        built, here = _numbers(self.tensorrt), _numbers(machine.tensorrt)
        if built != here and not (self.version_compatible and here > built):
            needs = "that version or a later one" if self.version_compatible else "exactly that version"
            once = "; with version_compatible=True later versions load it too" if built < here else ""
            raise ComponentError(
                f"{where}: an engine of TensorRT {self.tensorrt}, which needs {needs}",
                f"one for TensorRT {machine.tensorrt}, which this machine has",
                f"{AGAIN}{once}",
            )
        if _numbers(self.driver) > _numbers(machine.driver):
            logging.getLogger("tfopt").warning(
                "%s was built with driver %s, and this machine has the older %s", where, self.driver, machine.driver
            )


def _known(values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ValueError(f"{type(values).__name__}, and no object")
    return {name: values[name] for name in Tag.__dataclass_fields__ if name in values}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))
