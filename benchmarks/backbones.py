"""Count the backbones of keras.applications: the table of components/inspect_model/backbones.py.

python benchmarks/backbones.py
"""

import tempfile
from pathlib import Path

import keras

from tfopt.artifacts import SavedModel
from tfopt.components.compare_backbones.backbones import read_backbones
from tfopt.components.inspect_model.backbones import TABLE
from tfopt.components.inspect_model.inspect import inspect
from tfopt.keras_models import io as keras_models


def main() -> None:
    """Print a row each, the lightest first."""
    rows = []
    for backbone in read_backbones([*TABLE]):
        keras.backend.clear_session()
        build = getattr(keras.applications, backbone.builder)
        options = {"alpha": backbone.alpha} if backbone.family.widths else {}
        model = build(weights=None, include_top=False, pooling="avg", input_shape=(224, 224, 3), **options)
        with tempfile.TemporaryDirectory() as folder:
            keras_models.save(model, Path(folder))
            found = inspect(SavedModel(folder), "serving_default", None, None)
        rows.append(
            (found["flops"]["total"] / 1e6, str(backbone), found["parameters"]["count"], found["flops"]["not_counted"])
        )
    for mflops, name, parameters, not_counted in sorted(rows):
        print(
            f'    "{name}": ({parameters:_}, {mflops:.0f}),'
            + (f"  # not counted: {not_counted}" if not_counted else "")
        )


if __name__ == "__main__":
    main()
