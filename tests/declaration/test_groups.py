"""Test parameter groups: one frozen dataclass, flattened for every engine and passed to the function as one object."""

import json
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from tfopt import Group, Input, Output, component
from tfopt.artifacts import Files, Report
from tfopt.component import Between
from tfopt.errors import ComponentError


@dataclass(frozen=True)
class Schedule:
    """The end of training.

    Attributes:
        epochs: Passes over the data.
        stop: What ends training early.
    """

    epochs: Annotated[int, Between(1)] = 3
    stop: Literal["never", "loss"] = "loss"


@dataclass(frozen=True)
class Fit(Schedule):
    """Training options.

    Attributes:
        stop: What ends training before the last epoch.
        metrics: Metrics to report.
        seed: Seed of all random numbers.
    """

    metrics: tuple[str, ...] = ("accuracy",)
    seed: int | None = None


@component(image="tf")
def fit(
    data: Input[Files], report: Output[Report], *, rate: float = 0.1, fit: Group[Fit], verbose: bool = False
) -> None:
    """Write the parameters down.

    Args:
        data: Any file.
        report: The parameters.
        rate: Learning rate.
        fit: How the model is trained.
        verbose: Print more.
    """
    assert isinstance(fit, Fit) and isinstance(fit.metrics, tuple)
    values = {"epochs": fit.epochs, "stop": fit.stop, "metrics": fit.metrics, "seed": fit.seed}
    report.write({"rate": rate, "verbose": verbose, **values})


def test_a_group_is_flattened_where_it_stands_with_types_defaults_and_descriptions():
    assert list(fit.parameters) == ["rate", "epochs", "stop", "metrics", "seed", "verbose"]
    assert [parameter.default for parameter in fit.parameters.values()] == [0.1, 3, "loss", ["accuracy"], None, False]
    assert fit.parameters["epochs"].description == "Passes over the data."
    assert fit.parameters["metrics"].description == "Metrics to report."
    assert fit.parameters["stop"].description == "What ends training before the last epoch."  # not that of the base
    assert fit.schema()["properties"]["stop"]["enum"] == ["never", "loss"]
    assert fit.parameters["epochs"].expected == "int at least 1"


def test_the_function_gets_one_object(tmp_path):
    data = tmp_path / "data.csv"
    data.write_text("1")
    fit(data=data, report=tmp_path / "out", epochs=5, metrics=["auc", "loss"])
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == {
        "rate": 0.1, "verbose": False, "epochs": 5, "stop": "loss", "metrics": ["auc", "loss"], "seed": None
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"stop": "lost"}, {"metrics": "auc"}, {"fit": Fit()}, {"metrics": (1,)}], ids=str
)
def test_a_wrong_value_of_a_group_is_refused_like_any_other(tmp_path, wrong):
    with pytest.raises(ComponentError) as refusal:
        fit.check(wrong)
    assert next(iter(wrong)) in refusal.value.received


def test_a_name_declared_twice_is_an_error_of_the_author():
    @component(image="tf")
    def twice(data: Input[Files], report: Output[Report], *, epochs: int = 1, fit: Group[Fit]) -> None:
        """Declare epochs twice.

        Args:
            data: Any file.
            report: Nothing.
            epochs: Passes.
            fit: How the model is trained.
        """

    with pytest.raises(TypeError, match="epochs declared twice"):
        _ = twice.parameters
