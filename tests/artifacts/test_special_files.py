"""Test that devices, pipes and sockets instead of files are refused at once, wherever they are; reading may not end."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from tests import toys
from tfopt.artifacts import Evaluation, Examples, Files, KerasModel, Model, OnnxModel, PythonModule, SavedModel
from tfopt.cli.main import main
from tfopt.component import components
from tfopt.errors import ComponentError
from tfopt.serving.version_manifest import verify_version, write_description


def write_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket has 107 bytes at most
    socket.socket(socket.AF_UNIX).bind(path.name)
    os.chdir(here)


KINDS = {"pipe": os.mkfifo, "socket": write_socket, "link to a device": lambda path: path.symlink_to("/dev/zero")}
PLACES = {
    "model/saved_model.pb": SavedModel,
    "model/variables/variables.index": SavedModel,
    "model/variables/variables.data-00000-of-00001": Model,
    "model/assets/words.txt": Model,
    "model.keras": KerasModel,
    "model.onnx": OnnxModel,
    "model.tflite": Model,
    "model.xml": Model,
    "model.bin": Model,
    "model/model_card.json": Model,
    "examples/Split-train/data_tfrecord-00000-of-00001": Examples,
    "evaluation/evaluation.json": Evaluation,
    "module.py": PythonModule,
    "data/rows.csv": Files,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_they_are_refused_in_every_artifact(place, kind, tmp_path):
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    top = tmp_path / Path(place).parts[0]
    if top.is_dir() and place != "model/saved_model.pb":
        (top / "saved_model.pb").write_bytes(b"a graph")
    KINDS[kind](path)
    opened = top if place != "model.bin" else tmp_path / "model.xml"
    if place == "model.bin":
        opened.write_text("<net/>")
    with pytest.raises(ComponentError) as error:
        PLACES[place].open(opened)
    assert error.value.expected and error.value.fix
    if place != "model.bin":
        assert str(path) in error.value.received


def test_a_component_refuses_a_pipe_in_the_folder_of_variables(digits_model, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(digits_model / "Format-Serving", model)
    data = next((model / "variables").glob("variables.data*"))
    data.unlink()
    os.mkfifo(data)
    for name in ("fold_batch_norm", "optimize_graph", "inspect_model"):
        component = components()[name]
        (output,) = component.outputs
        with pytest.raises(ComponentError, match="a device, pipe or socket"):
            component(model=model, **{output: tmp_path / "output"})


def test_folders_without_them_are_read_as_before(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.txt").write_text("one\n")
    (tmp_path / "data" / "again").symlink_to("..")
    (tmp_path / "data" / "gone").symlink_to("nowhere")
    outputs = toys.count(data=tmp_path / "data" / "rows.txt", report=tmp_path / "report")
    assert outputs["report"].metadata["count"] == 4
    assert Files.open(tmp_path / "data").path == tmp_path / "data"


def test_a_pipe_as_a_run_file_is_refused(tmp_path, capsys):
    os.mkfifo(tmp_path / "run.yaml")
    assert main(["run", "-f", str(tmp_path / "run.yaml")]) == 1
    error = capsys.readouterr().err
    assert "run.yaml: a device, pipe or socket" in error and "how to fix: copy its content" in error


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_refused_in_a_pushed_version(kind, tmp_path):
    version = tmp_path / "served" / "1"
    version.mkdir(parents=True)
    (version / "model.tflite").write_text("a model")
    write_description(version, str(tmp_path / "served"), None)
    verify_version(version)
    KINDS[kind](version / "added")
    with pytest.raises(ComponentError, match="added"):
        verify_version(version)
