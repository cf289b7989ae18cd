"""The components that convert a model to the file of another runtime: what they promise alike is asked of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.conftest import write_examples
from tfopt.artifacts import Examples, Model, OnnxModel, OpenVINOModel, TFLiteModel
from tfopt.component import find


@dataclass(frozen=True)
class Exporter:
    """One of them.

    Attributes:
        format: What it writes; its name is ``export_`` and this.
        artifact: How what it writes is opened.
        files: What it writes, the one with the weights last.
        given: Settings of these tests, which need not be those of its users.
        card: What only its model cards say.
    """

    format: str
    artifact: Callable[[Path], Model]
    files: tuple[str, ...]
    given: Mapping[str, Any] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """For the names of tests."""
        return self.format

    @property
    def component(self) -> Callable[..., Any]:
        """The component itself."""
        return find(f"export_{self.format}")

    def request(self, precision: str = "float32", **given: Any) -> Any:
        """What its work is asked, from 100 examples unless said otherwise."""
        values = {"calibration_count": 100, "split": "train", "seed": 0, "tolerance": None, **self.given, **given}
        module = import_module(f"tfopt.components.export_{self.format}.request")
        return module.Request(precision=precision, **values)

    def export(self, model: Path, examples: Path | None, folder: Path, precision: str = "float32", **given) -> dict:
        """What the component does, in this process: without the seconds that a child takes to start."""
        folder.mkdir(parents=True)
        module = import_module(f"tfopt.components.export_{self.format}.exporting")
        data = Examples(examples) if examples else None
        return module.export(Model(model), data, folder, self.request(precision, **given))


TFLITE = Exporter("tflite", TFLiteModel, ("tflite",))
ONNX = Exporter("onnx", OnnxModel, ("model.onnx",), card={"opset": 18})
OPENVINO = Exporter(
    *("openvino", OpenVINOModel, ("model.xml", "model.bin")),
    given={"calibration_count": 50},
    card={"computed_in": "int8 and float32"},
)
EXPORTERS = (TFLITE, ONNX, OPENVINO)
PRETRAINED = "saved_models/icassp_2022"  # in basic_pitch: a model nobody here wrote, in several formats


def pretrained(name: str) -> Path:
    """A file or folder of the pretrained audio model."""
    spec = find_spec("basic_pitch")
    assert spec and spec.origin
    return Path(spec.origin).parent / PRETRAINED / name


def chords() -> NDArray[np.float32]:
    """Four sounds of two seconds, for the pretrained audio model."""
    draw, time_axis = np.random.default_rng(0), np.arange(43844) / 22050
    tones = [[np.sin(2 * np.pi * draw.uniform(80, 2000) * time_axis) for _ in range(4)] for _ in range(4)]
    return (np.sum(tones, axis=1) / 5).astype(np.float32)


def examples_of(folder: Path, columns: Mapping[str, Any], split: str = "train") -> Path:
    """Examples of one split, or one more split of them."""
    write_examples(folder / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz", columns)
    return folder
