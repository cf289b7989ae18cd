"""Scalars for TensorBoard, written with TensorFlow alone: Keras's own callback asks for the tensorboard package."""

from collections.abc import Mapping
from pathlib import Path


class ScalarLog:
    """Event files under a folder, laid out as Keras does: ``train`` and ``validation``, tagged ``epoch_loss`` etc."""

    def __init__(self, folder: Path) -> None:
        """Open both."""
        import tensorflow as tf

        self._writers = {split: tf.summary.create_file_writer(str(folder / split)) for split in ("train", "validation")}

    def write(self, epoch: int, numbers: Mapping[str, float]) -> None:
        """Add one epoch; names that begin with ``val_`` go to ``validation``."""
        import tensorflow as tf

        plain = tf.compat.v1.SummaryMetadata(plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars"))
        for name, value in numbers.items():
            with self._writers["validation" if name.startswith("val_") else "train"].as_default():
                tf.summary.write(f"epoch_{name.removeprefix('val_')}", tf.constant(value), epoch, metadata=plain)

    def close(self) -> None:
        """Finish the files."""
        for writer in self._writers.values():
            writer.close()
