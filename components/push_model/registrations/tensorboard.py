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
        raise ComponentError(
            "register=tensorboard without a decision",
            "the metrics that TensorBoard shows",
            "pass the decision of select_model, too",
        )


def register(address: str, version: PushedVersion) -> str:
    """Write an event file for the version, and one for the baseline, below the log folder; return the run's folder."""
    folder = remote_files.join(address, version.name)
    # TensorBoard reads the files of a run in the order of their names. A version that is registered again replaces its
    # own files.
    name = f"events.out.tfevents.{version.number:010}.tfopt"
    for run, metrics in (("pushed", version.metrics), ("baseline", version.baseline_metrics)):
        if metrics:
            remote_files.write_file(remote_files.join(folder, f"{run}/{name}"), encode_scalars(metrics, version.number))
    return folder


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


KIND = Kind(register, package="tensorboard", check_version=check_version)
