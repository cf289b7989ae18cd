"""Test TFX components and the import of sources; tests/cli/test_run_engines.py runs DAGs on the TFX runners."""

import json
import os
import shutil
from pathlib import Path

import pytest

import tests.object_store  # noqa: F401  (registers the scheme)
from tests import toys
from tfopt.artifacts import Files, KerasModel, Model, Report, TFLiteModel
from tfopt.component import Input, components
from tfopt.dag.outcome import Outcome
from tfopt.dag.tracing import trace
from tfopt.errors import ComponentError
from tfopt.tfx import runner


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "data with ä.txt"
    file.write_text("one\ntwo\n")
    return file


def test_only_components_that_depend_on_the_served_versions_are_never_cached():
    never = [name for name, component in components().items() if component.cache == "never"]
    assert sorted(never) == ["push_model", "replay"]


def one(steps, data: Input[Files]) -> None:
    """Count."""
    steps(toys.count, data=data)


def test_a_remote_source_is_imported_again_if_it_changed_or_has_no_digest(data, tmp_path):
    def imported(uri: str) -> tuple[dict, bool]:
        (importer, _) = runner.pipeline(trace(one), {"data": uri}, tmp_path / "root").components
        properties = importer.outputs["result"].additional_custom_properties
        return properties, bool(importer.exec_properties["reimport"])

    address = f"objects://{data}"
    first, unchanged = imported(address), imported(address)
    data.write_text("two\none\n")  # of the same length
    os.utime(data, (1, 1))
    changed = imported(address)
    assert first == unchanged != changed
    assert not (first[1] or changed[1])
    assert imported("nowhere://bucket/data.txt") == ({}, True)


def test_a_signal_that_beam_returns_as_text_is_raised(data, tmp_path, monkeypatch):
    class Interrupted:
        def run(self, _: object) -> None:
            raise RuntimeError("tfopt.cli.termination.Terminated [while running 'Run[count]']")

    monkeypatch.setattr(runner, "import_runner", lambda _: Interrupted)
    with pytest.raises(KeyboardInterrupt):
        runner.run(trace(one), {"data": data}, tmp_path / "root")


@pytest.mark.parametrize("kind", ["link", "other user"])
def test_metadata_that_another_user_may_have_written_are_refused(data, tmp_path, monkeypatch, kind):
    file = tmp_path / "root" / "metadata.sqlite"
    file.parent.mkdir()
    if kind == "link":
        file.symlink_to(tmp_path / "metadata.sqlite")
    else:
        file.touch()
        owner = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ComponentError, match=r"metadata.sqlite: a link, or a file of another user"):
        runner.run(trace(one), {"data": data}, file.parent)
    assert not (tmp_path / "metadata.sqlite").exists()


def attempts(steps, data: Input[Files], model: Input[Model]) -> None:
    """Count, and try to make a model."""
    steps(toys.count, data=data)
    steps(toys.attempt, model=model, on_failure="row")


def test_results_that_changed_were_removed_or_failed_are_made_again(data, digits_lite, tmp_path):
    shutil.copytree(digits_lite, tmp_path / "model")

    def run() -> tuple[list[str], dict[str, Outcome]]:
        values = {"data": data, "model": tmp_path / "model"}
        outcomes = runner.run(trace(attempts), values, tmp_path / "root", engine="local")
        return [step for step, outcome in outcomes.items() if outcome.reused], outcomes

    run()
    reused, outcomes = run()
    assert reused == ["count"]  # the model could not be made
    assert "not ready" in outcomes["attempt"].outputs["made"].failure
    (tmp_path / "ready").touch()
    assert run()[1]["attempt"].outputs["made"].failure is None
    reused, outcomes = run()
    assert reused == ["count", "attempt"]
    (outcomes["count"].outputs["report"].path / "report.json").write_text('{"count": 0}')
    reused, outcomes = run()
    assert reused == ["attempt"]
    assert outcomes["count"].outputs["report"].read()["count"] == 8
    shutil.rmtree(outcomes["attempt"].outputs["made"].path)
    assert run()[0] == ["count"]
    assert run()[0] == ["count", "attempt"]


def test_node_refuses_channels_of_wrong_types():
    from tfx import types
    from tfx.types import standard_artifacts

    from tfopt.tfx.components import TYPES, node

    with pytest.raises(ComponentError, match="declared type"):
        node(
            toys.take_keras,
            model=types.Channel(type=TYPES[TFLiteModel]),
            examples=types.Channel(type=standard_artifacts.Examples),
        )
    node(
        toys.take_keras,
        model=types.Channel(type=standard_artifacts.Model),
        examples=types.Channel(type=standard_artifacts.Examples),
    )
    node(toys.copy_model, model=types.Channel(type=TYPES[KerasModel]))


def test_a_list_of_more_than_nine_artifacts_has_the_order_of_its_channels(tmp_path):
    from tfopt.tfx.components import COMPONENT, TYPES, Executor

    artifacts = {f"reports_{number}": TYPES[Report]() for number in range(11, 0, -1)}
    for number, artifact in zip(range(11, 0, -1), artifacts.values(), strict=True):
        artifact.uri = str(tmp_path / str(number))
        Path(artifact.uri).mkdir()
        Report(artifact.uri).write({"count": number})
    total = TYPES[Report]()
    total.uri = str(tmp_path / "total")
    inputs = {name: [artifact] for name, artifact in artifacts.items()}
    Executor().Do(inputs, {"total": [total]}, {COMPONENT: "tests.toys:add", "start": 0})
    assert Report(total.uri).read()["parts"] == list(range(1, 12))


def test_remote_artifacts_are_downloaded_and_uploaded(digits_model, tmp_path):
    from tfopt.tfx.components import COMPONENT, TYPES, Executor

    parent, child = TYPES[Model](), TYPES[Model]()
    parent.uri, child.uri = f"objects://{digits_model}", f"objects://{tmp_path}/child"
    Executor().Do({"model": [parent]}, {"copied": [child]}, {COMPONENT: "tests.toys:copy_model", "note": "far"})
    assert json.loads((tmp_path / "child" / "model_card.json").read_text())["note"] == "far"
    assert (tmp_path / "child" / "Format-Serving" / "saved_model.pb").is_file()
    assert child.get_string_custom_property("note") == "far"
