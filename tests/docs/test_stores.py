"""Test that the commands of docs/stores.md run, with a store of the protocol of S3 on this machine."""

import importlib
import re
import shlex
from pathlib import Path

import fsspec
import pytest

from tfopt.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "stores.md").read_text()
# The sources and parameters of `optimize`, and its last steps, for two exports, which are measured in less time.
DAG = '''
from tfopt import Input, Steps
from tfopt.artifacts import Examples, SavedModel
from tfopt.component import Group
from tfopt.pipelines.optimize import Selection, select_and_push


def exports(steps: Steps, model: Input[SavedModel], examples: Input[Examples], *, selection: Group[Selection]):
    """Compare two exports."""
    lite = steps.export_tflite(model=model, examples=examples).outputs["exported"]
    onnx = steps.export_onnx(model=model, examples=examples).outputs["exported"]
    return select_and_push(steps, lite, [onnx], examples, selection)
'''


@pytest.mark.nightly  # daily: the stores, in tests/components and tests/artifacts
@pytest.mark.usefixtures("short_serving_check")
@pytest.mark.parametrize("pipeline", ["exports.py", pytest.param("optimize", marks=pytest.mark.nightly)])
def test_the_commands_of_the_page_run(pipeline, digits_model, digits_examples, bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module("tfopt.pipelines.optimize"), "CANDIDATES", ("tflite float32",))
    monkeypatch.chdir(tmp_path)
    Path("exports.py").write_text(DAG)
    store = fsspec.filesystem("s3")
    store.put(str(digits_model / "Format-Serving"), f"{bucket}/model", recursive=True)
    store.put(str(digits_examples), f"{bucket}/examples", recursive=True)
    (block,) = re.findall(r"```console\n(.*?)```", PAGE, re.S)
    for command in block.splitlines():
        words = shlex.split(command.replace("s3://bucket", bucket).replace(" optimize ", f" {pipeline} "))
        if words[1] == "run":
            words += ["--set", "seconds=0.1", "--set", 'batch_sizes=["1"]']  # short measurements
        assert main(words[1:]) == 0
    assert store.exists(f"{bucket}/lite/Format-Serving/tflite")
    assert store.ls(f"{bucket}/served/versions")
