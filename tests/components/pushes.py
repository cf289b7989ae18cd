"""Pushes: of a model, without the component; of a decision on written reports, for tests of registrations."""

from pathlib import Path

from tests.components.decisions import decide
from tests.reports import DIGITS
from tfopt.artifacts import Model
from tfopt.components.push_model.component import push_model
from tfopt.components.push_model.push_plan import PushResult
from tfopt.components.push_model.registrations.kind import PushedVersion
from tfopt.components.push_model.store_versions import StoreVersions
from tfopt.components.push_model.version_record import VersionRecord
from tfopt.components.push_model.versions import MakeConfig, Versions
from tfopt.serving.layouts import copy_model


def version(**fields) -> PushedVersion:
    """Return a version with some fields of its own."""
    values = {
        "name": "digits",
        "number": 8,
        "path": "/models/digits/8",
        "destination": "s3://bucket/models/digits",
        "format": "tflite",
        "layout": "tf_serving",
        "model": "tflite int8",
        "digest": "0" * 64,
        "reason": "blessed",
    }
    return PushedVersion(**values | fields)


def add(
    versions: Versions | StoreVersions, model: Path, make_config: MakeConfig | None = None, share: int | None = None
) -> PushResult:
    """Add a version with the files of a model only, and a configuration of Triton."""
    record = VersionRecord("", version(), [])
    with versions.staged() as stage:
        copy_model(Model(model), versions.layout, stage)
        return versions.add(stage, record, make_config=make_config, share=share)


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
