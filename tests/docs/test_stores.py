"""Test that the commands of docs/stores.md run, with a store of the protocol of S3 on this machine."""

import importlib
import re
import shlex
from pathlib import Path

import fsspec

from tfopt.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "stores.md").read_text()


def test_the_commands_of_the_page_run(digits_model, digits_examples, bucket, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module("tfopt.pipelines.optimize"), "CANDIDATES", ("tflite float32",))
    monkeypatch.chdir(tmp_path)
    store = fsspec.filesystem("s3")
    store.put(str(digits_model / "Format-Serving"), f"{bucket}/model", recursive=True)
    store.put(str(digits_examples), f"{bucket}/examples", recursive=True)
    (block,) = re.findall(r"```console\n(.*?)```", PAGE, re.S)
    for command in block.splitlines():
        words = shlex.split(command.replace("s3://bucket", bucket))
        if words[1] == "run":
            words += ["--set", "seconds=0.1", "--set", 'batch_sizes=["1"]']  # short measurements
        assert main(words[1:]) == 0
    assert store.exists(f"{bucket}/lite/Format-Serving/tflite")
    assert store.ls(f"{bucket}/served/versions")
