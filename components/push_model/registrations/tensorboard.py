"""Write the metrics of a version as scalars for TensorBoard: a step per version, a run for it and for the baseline."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from tfopt.components.push_model.registrations.kind import Kind, PushedVersion
from tfopt.errors import ComponentError
from tfopt.storage import remote_files


def check_version(version: PushedVersion) -> None:
    """Raise ComponentError for a version without metrics, which are all that TensorBoard shows."""
    if not version.metrics:
        received = "register=tensorboard without a decision"
        raise ComponentError(received, "the metrics that TensorBoard shows", "pass the decision of select_model, too")


def register(address: str, version: PushedVersion) -> str:
    """Write an event file for the version, and one for the baseline, below the log folder; return the run's folder."""
    for run, metrics in (("pushed", version.metrics), ("baseline", version.baseline_metrics)):
        if metrics:
            remote_files.write_file(_file(address, version, run), encode_scalars(metrics, version.number))
    return remote_files.join(address, version.name)


def update(address: str, version: PushedVersion, served: PushedVersion | None, withdrawn: str | None) -> str:
    """Remove the scalars of a withdrawn version, or write those of a restored one again."""
    if withdrawn is None:
        return register(address, version)
    for run in ("pushed", "baseline"):
        remote_files.remove(_file(address, version, run))
    return f"removed step {version.number} below {remote_files.join(address, version.name)}"


def _file(address: str, version: PushedVersion, run: str) -> str:
    """Return the file of a version; TensorBoard reads the files of a run in the order of their names."""
    return remote_files.join(address, f"{version.name}/{run}/events.out.tfevents.{version.number:010}.tfopt")


def encode_scalars(metrics: Mapping[str, float], step: int) -> bytes:
    """Return the content of an event file with one scalar for each metric."""
    from tensorboard.summary import Writer

    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        writer = Writer(folder)
        for metric, value in metrics.items():
            writer.add_scalar(metric, value, step)
        writer.close()
        (file,) = Path(folder).iterdir()
        return file.read_bytes()


KIND = Kind(register, package="tensorboard", check_version=check_version, update=update)
