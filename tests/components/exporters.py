"""The exporting components and their common test data: one description of each, for tests that run on all of them."""

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.conftest import write_examples
from tfopt import runtimes
from tfopt.artifacts import Examples, Model, OnnxModel, OpenVINOModel, TFLiteModel
from tfopt.component import find
from tfopt.components.export_onnx.parameters import OnnxConversion
from tfopt.components.export_openvino.parameters import OpenVINOConversion
from tfopt.components.export_tflite.parameters import TFLiteConversion
from tfopt.conversion.int8_overflow import needs_reduced_range


def run(model: Model, inputs: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the outputs of a model."""
    with runtimes.load(model) as runtime:
        return dict(runtime.run(inputs))


@dataclass(frozen=True)
class Exporter:
    """One exporting component.

    Attributes:
        format: The format; the component's name is ``export_`` and this.
        artifact: Opens the output.
        parameters: The parameter group.
        files: The files of the output, the one with the weights last.
        settings: Parameters that differ from the component's defaults in these tests.
        card: Entries of its model cards that other exporters do not have.
    """

    format: str
    artifact: Callable[[Path], Model]
    parameters: Callable[..., Any]
    files: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    card: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the format, for the names of tests."""
        return self.format

    def call_isolated(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a call, of OpenVINO in a new process.

        OpenVINO crashed in `malloc` in the process of some tests in four of some fourteen runs of the suite, for an
        unknown reason.
        """
        if self.format != "openvino":
            return call(*arguments)
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            return pool.submit(call, *arguments).result()

    @property
    def component(self) -> Callable[..., Any]:
        """The component itself."""
        return find(f"export_{self.format}")

    def export(self, model: Path, examples: Path | None, folder: Path, precision: str = "float32", **settings) -> dict:
        """Run the work of the component in this process, without starting a child, on 100 calibration examples."""
        folder.mkdir(parents=True)
        module = import_module(f"tfopt.components.export_{self.format}.export")
        values = {"precision": precision, "calibration_count": 100, **self.settings, **settings}
        return module.export(Model(model), Examples(examples) if examples else None, folder, self.parameters(**values))


TFLITE = Exporter("tflite", TFLiteModel, TFLiteConversion, ("tflite",))
ONNX = Exporter("onnx", OnnxModel, OnnxConversion, ("model.onnx",), card={"opset": 18})
OPENVINO = Exporter(
    *("openvino", OpenVINOModel, OpenVINOConversion, ("model.xml", "model.bin")),
    settings={"calibration_count": 50},
    card={"computed_in": "int8 and float32"},
)
EXPORTERS = (TFLITE, ONNX, OPENVINO)
PRETRAINED = "saved_models/icassp_2022"  # in basic_pitch: a third-party model in several formats
# Of the output's range. It takes logarithms of nearly silent frequencies: on an AMD EPYC without AVX-512, any two
# runtimes, and two optimization levels of ONNX Runtime, differ by up to 2e-3.
PRETRAINED_ERROR = 5e-3 if needs_reduced_range() else 1e-4


def pretrained(name: str) -> Path:
    """Return a file or folder of the pretrained audio model."""
    spec = find_spec("basic_pitch")
    assert spec and spec.origin
    return Path(spec.origin).parent / PRETRAINED / name


def chords() -> NDArray[np.float32]:
    """Return four sounds of two seconds, for the pretrained audio model."""
    draw, time_axis = np.random.default_rng(0), np.arange(43844) / 22050
    tones = [[np.sin(2 * np.pi * draw.uniform(80, 2000) * time_axis) for _ in range(4)] for _ in range(4)]
    return (np.sum(tones, axis=1) / 5).astype(np.float32)


def write_split(folder: Path, columns: Mapping[str, Any], split: str = "train") -> Path:
    """Write a split of examples to a folder, and return the folder."""
    write_examples(folder / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz", columns)
    return folder
