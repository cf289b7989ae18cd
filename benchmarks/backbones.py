"""Count the costs of the backbones in the table of tfopt/keras_models/backbones.py.

python benchmarks/backbones.py
"""

import tempfile
from pathlib import Path

import keras

from tfopt import keras_models
from tfopt.artifacts import SavedModel
from tfopt.components.inspect_model.inspect import inspect
from tfopt.keras_models.backbones import COSTS, COUNTED_SIDE, Backbone, read_backbones
from tfopt.reports.inspection_report import CostBudget, InspectionReport


def count(backbone: Backbone) -> InspectionReport:
    """Inspect a backbone without its head."""
    keras.backend.clear_session()
    build = getattr(keras.applications, backbone.builder)
    options = {"alpha": backbone.alpha} if backbone.architecture.has_alpha else {}
    shape = (COUNTED_SIDE, COUNTED_SIDE, 3)
    model = build(weights=None, include_top=False, pooling="avg", input_shape=shape, **options)
    with tempfile.TemporaryDirectory() as folder:
        keras_models.save(model, Path(folder))
        return inspect(SavedModel(folder), "serving_default", CostBudget(None, None))


def main() -> None:
    """Print a row for each backbone, those with the fewest operations first."""
    reports = {str(backbone): count(backbone) for backbone in read_backbones([*COSTS])}
    for name, report in sorted(reports.items(), key=lambda item: item[1].flops.total):
        row = f"{name}: Cost({report.parameters.count:_}, {report.flops.total / 1e6:.0f})"
        print(row + (f"  # not counted: {report.flops.not_counted}" if report.flops.not_counted else ""))


if __name__ == "__main__":
    main()
