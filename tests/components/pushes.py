"""A decision on written reports and its push, for tests of registrations."""

from pathlib import Path

from tests.components.decisions import decide
from tests.reports import DIGITS
from tfopt.components.push_model.component import push_model


class Push:
    """A decision that can be pushed repeatedly.

    Attributes:
        destination: The folder of versions.
        decision: The content of ``decision.json``.
    """

    def __init__(self, folder: Path, **parameters) -> None:
        self._folder, self._count = folder, 0
        self.destination = folder / "digits"
        self.decision = decide(DIGITS, folder, **parameters)

    @property
    def metrics(self) -> dict[str, float]:
        """Return the metrics of the selected model."""
        return next(model["metrics"] for model in self.decision["models"] if model["chosen"])

    @property
    def baseline_metrics(self) -> dict[str, float]:
        """Return the metrics of the baseline."""
        return next(model["metrics"] for model in self.decision["models"] if model["parent"])

    def __call__(self, *register: str, **parameters) -> dict:
        """Push, register, and return ``pushed.json``."""
        self._count += 1
        parameters = {"destination": str(self.destination), "decision": self._folder / "decision"} | parameters
        outputs = push_model(
            self._folder / "selected",
            self._folder / "blessing",
            self._folder / f"pushed {self._count}",
            register=register,
            **parameters,
        )
        return outputs["pushed"].read()
