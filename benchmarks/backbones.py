"""Count the backbones of keras.applications: the table of components/inspect_model/backbones.py.

python benchmarks/backbones.py
"""

import tempfile
from pathlib import Path

import keras

from tfopt import keras_models
from tfopt.artifacts import SavedModel
from tfopt.components.inspect_model.inspecting import inspect

BACKBONES = {
    "MobileNetV3Small": {},
    "MobileNet 0.25": {"alpha": 0.25},
    "MobileNetV2 0.35": {"alpha": 0.35},
    "MobileNetV2 0.5": {"alpha": 0.5},
    "MobileNet 0.5": {"alpha": 0.5},
    "MobileNetV3Large": {},
    "MobileNetV2": {},
    "NASNetMobile": {},
    "EfficientNetB0": {},
    "MobileNet": {},
    "EfficientNetB1": {},
    "EfficientNetV2B0": {},
    "EfficientNetB2": {},
    "DenseNet121": {},
    "EfficientNetV2B2": {},
    "ResNet50": {},
}


def main() -> None:
    """Print a row each, the lightest first."""
    rows = []
    for name, options in BACKBONES.items():
        keras.backend.clear_session()
        build = getattr(keras.applications, name.split()[0])
        model = build(weights=None, include_top=False, pooling="avg", input_shape=(224, 224, 3), **options)
        with tempfile.TemporaryDirectory() as folder:
            keras_models.save(model, Path(folder))
            found = inspect(SavedModel(folder), "serving_default", None, None)
        rows.append((found["flops"]["total"] / 1e6, name, found["parameters"]["count"], found["flops"]["not_counted"]))
    for mflops, name, parameters, not_counted in sorted(rows):
        print(
            f'    "{name}": ({parameters:_}, {mflops:.0f}),'
            + (f"  # not counted: {not_counted}" if not_counted else "")
        )


if __name__ == "__main__":
    main()
