"""Test remote artifacts with a real Beam file system: ``objects:///PATH`` is the local file of that path."""

import shutil
from pathlib import Path

import pytest

import tests.object_store  # noqa: F401  (Beam registers file systems when their classes are defined)
from tfopt.artifacts import storage
from tfopt.components.evaluate.component import evaluate
from tfopt.errors import ComponentError


def test_local_copy_copies_a_folder_once_without_decompression(tmp_path):
    (tmp_path / "there" / "in").mkdir(parents=True)
    (tmp_path / "there" / "a.gz").write_bytes(b"not unzipped on the way")
    (tmp_path / "there" / "in" / "b.txt").write_text("b")
    here = storage.local_copy(f"objects://{tmp_path}/there")
    assert (tmp_path / "there" / "a.gz").read_bytes() == Path(here, "a.gz").read_bytes()
    shutil.rmtree(tmp_path / "there")
    assert storage.local_copy(f"objects://{tmp_path}/there") == here
    assert sorted(storage.list_remote_files(here)) == [f"{here}/a.gz", f"{here}/in/b.txt"]


def test_a_single_file_is_fetched_under_its_name_and_a_path_stays(tmp_path):
    (tmp_path / "model.tflite").write_bytes(b"TFL3")
    here = storage.local_copy(f"objects://{tmp_path}/model.tflite")
    assert here.endswith("/model.tflite")
    assert storage.local_copy(here) == here


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(ComponentError, match=r"(?s)received: .*no such file.*expected: .*how to fix: "):
        storage.local_copy(f"objects://{tmp_path}/nothing")
    with pytest.raises(ComponentError, match=r"(?s)an address that Beam can list.*credentials"):
        storage.local_copy("unheard-of://bucket/model")


def test_evaluate_reads_and_writes_remote_artifacts(tmp_path, digits_model, digits_examples):
    here = evaluate(digits_model, [digits_model], digits_examples, tmp_path / "here")["evaluation"].read()
    evaluate(
        f"objects://{digits_model}",
        [f"objects://{digits_model}"],
        f"objects://{digits_examples}",
        f"objects://{tmp_path}/there",
    )
    assert sorted(file.name for file in (tmp_path / "there").iterdir()) == ["evaluation.json"]
    assert (tmp_path / "there" / "evaluation.json").read_text() == (tmp_path / "here" / "evaluation.json").read_text()
    assert here["counts"]["read"] == 397
    with pytest.raises(ComponentError, match=r"(?s)Split-test/: no files.*name another split"):
        evaluate(digits_model, [digits_model], f"objects://{digits_examples}", tmp_path / "not", split="test")
