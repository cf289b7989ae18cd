"""Test ``tfopt submit --stage``: local sources are uploaded once per content to a local S3 server."""

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import write_examples
from tests.kfp.test_submit import server  # noqa: F401  (a fixture)
from tfopt.cli.main import main
from tfopt.storage import remote_files


@pytest.fixture
def rows(tmp_path):
    file = tmp_path / "rows, größer.csv"
    file.write_text("x,y\n1,2\n")
    (tmp_path / "model.py").write_text("def build_model(): ...\n")
    return file


def submit(server, rows, stage: str) -> dict:  # noqa: F811
    sources = ["--set", f"data={rows}", "--set", f"module={rows.with_name('model.py')}"]
    assert main(["submit", "retrain", *sources, "--stage", stage, "--endpoint", server.url]) == 0
    return list(server.kinds["runs"].values())[-1]["runtime_config"]["parameters"]


def test_local_sources_are_uploaded_once_per_content(server, rows, bucket, capsys):  # noqa: F811
    first = submit(server, rows, f"{bucket}/staged")
    assert remote_files.read_file(first["data_uri"]) == b"x,y\n1,2\n"
    assert first["data_uri"].startswith(f"{bucket}/staged/") and first["data_uri"].endswith("/rows, größer.csv")
    assert capsys.readouterr().err.count("uploading") == 2
    assert submit(server, rows, f"{bucket}/staged") == first
    assert "uploading" not in capsys.readouterr().err
    rows.write_text("x,y\n1,3\n")
    changed = submit(server, rows, f"{bucket}/staged")
    assert (changed["module_uri"], changed["data_uri"] != first["data_uri"]) == (first["module_uri"], True)
    assert remote_files.read_file(first["data_uri"]) == b"x,y\n1,2\n"  # a run that uses it may still be active


def test_an_upload_that_ended_early_is_repeated(server, rows, bucket):  # noqa: F811
    address = submit(server, rows, bucket)["data_uri"]
    remote_files.remove(f"{address}.complete")
    remote_files.write_file(address, b"x,y\n")
    submit(server, rows, bucket)
    assert remote_files.read_file(address) == b"x,y\n1,2\n"


def test_wrong_sources_and_stages_are_refused_before_a_request(server, rows, bucket, capsys):  # noqa: F811
    def refused(*words: str) -> str:
        assert main(["submit", "retrain", *words, "--endpoint", server.url]) == 1
        assert server.kinds["runs"] == {}
        return capsys.readouterr().err

    module = ["--set", f"module={rows.with_name('model.py')}"]
    assert "no such file" in refused("--set", f"data={rows}s", *module, "--stage", bucket)
    assert "--stage /mnt/stage" in refused("--set", f"data={rows}", *module, "--stage", "/mnt/stage")
    assert "let --stage s3://BUCKET/FOLDER do that" in refused("--set", f"data={rows}", *module)
    assert remote_files.list_remote_files(bucket) == {}


def test_examples_that_no_step_can_use_are_not_uploaded(server, bucket, tmp_path, capsys):  # noqa: F811
    serve = tf.function(lambda x: {"y": x}, input_signature=[tf.TensorSpec([None, 2], name="x")])
    tf.saved_model.save(tf.Module(), str(tmp_path / "model"), signatures=serve)
    for split in ("train", "eval"):
        columns = {"x": np.zeros((4, 2), np.float32), "label": np.zeros(4, np.int64)}
        write_examples(tmp_path / "examples" / f"Split-{split}" / "data.gz", columns)
    sources = [f"model={tmp_path / 'model'}", f"examples={tmp_path / 'examples'}", f"destination={bucket}/pushed"]
    words = [word for value in [*sources, "label=labels"] for word in ("--set", value)]
    assert main(["submit", "optimize", *words, "--stage", f"{bucket}/staged", "--endpoint", server.url]) == 1
    assert "no label 'labels'" in capsys.readouterr().err
    assert remote_files.list_remote_files(bucket) == {} and server.kinds["runs"] == {}
