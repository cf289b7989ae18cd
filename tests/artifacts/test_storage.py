"""Test remote artifacts with a file system of fsspec, ``objects:///PATH``, and with a local S3 server."""

import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tests.object_store  # noqa: F401  (registers the scheme)
from tests import toys, webhdfs_server
from tfopt.components.evaluate.component import evaluate
from tfopt.errors import ComponentError
from tfopt.storage import remote_files, staging


def test_local_copy_copies_a_folder_once_without_decompression(tmp_path):
    (tmp_path / "there" / "in").mkdir(parents=True)
    (tmp_path / "there" / "a.gz").write_bytes(b"not unzipped on the way")
    (tmp_path / "there" / "in" / "b.txt").write_text("b")
    here = remote_files.local_copy(f"objects://{tmp_path}/there")
    assert (tmp_path / "there" / "a.gz").read_bytes() == Path(here, "a.gz").read_bytes()
    assert remote_files.local_copy(f"objects://{tmp_path}/there") == here
    (tmp_path / "there" / "in" / "b.txt").write_text("changed")
    assert Path(remote_files.local_copy(f"objects://{tmp_path}/there"), "in", "b.txt").read_text() == "changed"
    assert Path(here, "in", "b.txt").read_text() == "b"


def test_a_single_file_is_fetched_under_its_name_and_a_path_stays(tmp_path):
    (tmp_path / "model.tflite").write_bytes(b"TFL3")
    here = remote_files.local_copy(f"objects://{tmp_path}/model.tflite")
    assert here.endswith("/model.tflite")
    assert remote_files.local_copy(here) == here


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(ComponentError, match=r"(?s)received: .*no such file.*expected: .*how to fix: "):
        remote_files.local_copy(f"objects://{tmp_path}/nothing")
    with pytest.raises(ComponentError, match=r"(?s)an address that fsspec can read.*credentials"):
        remote_files.local_copy("unheard-of://bucket/model")


def test_evaluate_reads_and_writes_remote_artifacts(tmp_path, digits_lite, digits_examples):
    here = evaluate(digits_lite, [digits_lite], digits_examples, tmp_path / "here", replicates=100)["evaluation"].read()
    evaluate(
        f"objects://{digits_lite}",
        [f"objects://{digits_lite}"],
        f"objects://{digits_examples}",
        f"objects://{tmp_path}/there",
        replicates=100,
    )
    assert sorted(file.name for file in (tmp_path / "there").iterdir()) == ["evaluation.json"]
    assert (tmp_path / "there" / "evaluation.json").read_text() == (tmp_path / "here" / "evaluation.json").read_text()
    assert here["counts"]["read"] == 397
    with pytest.raises(ComponentError, match=r"(?s)Split-test/: no files.*name another split"):
        evaluate(digits_lite, [digits_lite], f"objects://{digits_examples}", tmp_path / "not", split="test")


def test_an_s3_server_has_the_same_files_and_new_content_has_a_new_digest(bucket, tmp_path):
    (tmp_path / "model" / "variables").mkdir(parents=True)
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"graph")
    (tmp_path / "model" / "variables" / "variables.index").write_bytes(b"index")
    remote_files.upload(tmp_path / "model", f"{bucket}/a folder/model")
    assert remote_files.list_remote_files(f"{bucket}/a folder/model/") == {
        f"{bucket}/a folder/model/saved_model.pb": 5,
        f"{bucket}/a folder/model/variables/variables.index": 5,
    }
    assert remote_files.list_remote_files(f"{bucket}/a folder/mod") == {}
    first = remote_files.content_digest(f"{bucket}/a folder/model")
    assert (
        Path(remote_files.local_copy(f"{bucket}/a folder/model"), "variables", "variables.index").read_bytes()
        == b"index"
    )
    remote_files.write_file(f"{bucket}/a folder/model/saved_model.pb", b"gr4ph")
    assert first != remote_files.content_digest(f"{bucket}/a folder/model")
    assert Path(remote_files.local_copy(f"{bucket}/a folder/model"), "saved_model.pb").read_bytes() == b"gr4ph"
    remote_files.remove(f"{bucket}/a folder/model")
    assert remote_files.list_remote_files(bucket) == {}


def test_a_file_is_created_once(bucket, tmp_path):
    for address in (f"{bucket}/claim", f"memory://{tmp_path}/claim"):
        assert remote_files.create_file(address, b"first")
        assert not remote_files.create_file(address, b"second")
        assert remote_files.read_file(address) == b"first"
        assert remote_files.read_file(f"{address}-other") is None


def test_a_store_without_conditional_writes_is_recognized(bucket, tmp_path):
    remote_files.check_conditional_writes(bucket)
    assert remote_files.list_remote_files(bucket) == {}
    for scheme in ("overwriting", "appending", "objects"):
        with pytest.raises(ComponentError, match=r"(?s)has no conditional writes.*mount this one"):
            remote_files.check_conditional_writes(f"{scheme}://{tmp_path}")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("use", [remote_files.local_copy, remote_files.check_scheme, remote_files.check_exists])
def test_web_addresses_are_refused_at_once(use):
    with pytest.raises(ComponentError, match=r"(?s)https://example\.org/rows\.csv.*download it"):
        use("https://example.org/rows.csv")


def test_a_missing_bucket_package_or_credential_is_named(bucket, monkeypatch):
    with pytest.raises(ComponentError, match=r"(?s)s3://no-such-bucket/model.*no such file.*check it"):
        remote_files.local_copy("s3://no-such-bucket/model")
    monkeypatch.setitem(sys.modules, "adlfs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "abfs", raising=False)
    with pytest.raises(ComponentError, match=r"(?s)the package that reads abfs://.*pip install 'tfopt\[abfs\]'"):
        remote_files.list_remote_files("abfs://container/model")


def test_a_webhdfs_server_has_the_same_files_and_new_content_has_a_new_digest(tmp_path):
    (tmp_path / "model" / "variables").mkdir(parents=True)
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"graph")
    (tmp_path / "model" / "variables" / "variables.index").write_bytes(b"index")
    (tmp_path / "served").mkdir()
    with webhdfs_server.serve(tmp_path / "served") as hdfs:
        remote_files.upload(tmp_path / "model", f"{hdfs}/a folder/model")
        assert remote_files.list_remote_files(f"{hdfs}/a folder/model/") == {
            f"{hdfs}/a folder/model/saved_model.pb": 5,
            f"{hdfs}/a folder/model/variables/variables.index": 5,
        }
        assert remote_files.list_names(f"{hdfs}/a folder/model") == ["saved_model.pb", "variables"]
        first = remote_files.content_digest(f"{hdfs}/a folder/model")
        here = remote_files.local_copy(f"{hdfs}/a folder/model")
        assert Path(here, "variables", "variables.index").read_bytes() == b"index"
        assert remote_files.local_copy(f"{hdfs}/a folder/model") == here
        remote_files.write_file(f"{hdfs}/a folder/model/saved_model.pb", b"new graph")
        assert remote_files.content_digest(f"{hdfs}/a folder/model") not in (first, None)
        assert remote_files.read_file(f"{hdfs}/a folder/model/saved_model.pb") == b"new graph"
        assert remote_files.read_file(f"{hdfs}/a folder/none") is None
        with pytest.raises(ComponentError, match=r"(?s)has no conditional writes.*mount this one"):
            remote_files.check_conditional_writes(hdfs)
        remote_files.remove(f"{hdfs}/a folder/model")
        assert remote_files.list_remote_files(hdfs) == {}
        with pytest.raises(ComponentError, match=r"(?s)webhdfs://.*/model: no such file.*check it"):
            remote_files.local_copy(f"{hdfs}/a folder/model")


def test_a_component_reads_and_writes_webhdfs_addresses(tmp_path, digits_model):
    from tfopt.components.inspect_model.component import inspect_model

    with webhdfs_server.serve(tmp_path) as hdfs:
        remote_files.upload(digits_model, f"{hdfs}/model")
        inspect_model(f"{hdfs}/model", f"{hdfs}/inspection")
    assert (tmp_path / "inspection" / "report.html").is_file()


def test_hdfs_without_hadoops_libraries_names_them(monkeypatch):
    remote_files.check_scheme("hdfs://namenode:8020/model")  # the machine that runs the step may have them
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(ComponentError) as error:
        remote_files.local_copy("hdfs://namenode:8020/model")
    assert re.fullmatch("hdfs://namenode:8020/model: .* load lib.*", error.value.received)
    assert error.value.expected == "the libraries that read hdfs://"
    assert all(name in error.value.fix for name in ("JAVA_HOME", "HADOOP_HOME", "CLASSPATH", "webhdfs://HOST:PORT"))


def test_a_component_reads_and_writes_addresses(bucket, digits_model):
    remote_files.upload(digits_model, f"{bucket}/model")
    written = toys.copy_model(model=f"{bucket}/model", copied=f"{bucket}/out/copy")["copied"]
    assert written.uri == f"{bucket}/out/copy"
    assert b'"copy_model"' in (remote_files.read_file(f"{bucket}/out/copy/model_card.json") or b"")
    with pytest.raises(ComponentError, match=r"(?s)out/copy exists.*a new or empty folder"):
        toys.copy_model(model=f"{bucket}/model", copied=f"{bucket}/out/copy")
    remote_files.write_file(f"{bucket}/empty/notes.txt", b"no model")
    with pytest.raises(ComponentError, match=rf"(?s)received: {bucket}/empty: no model in it"):
        toys.copy_model(model=f"{bucket}/empty", copied=f"{bucket}/other")
    with pytest.raises(ComponentError, match=r"(?s)nothing: no such file or folder.*an address with content"):
        toys.copy_model(model=f"{bucket}/nothing", copied=f"{bucket}/other")
    assert remote_files.list_remote_files(f"{bucket}/other") == {}


KILLED = """
import os, signal, sys
from pathlib import Path
from tfopt.storage import publication
from tfopt.storage import remote_files
def upload_half(staged, address):
    remote_files.write_file(f"{address}/half", b"h")
    os.kill(os.getpid(), signal.SIGKILL)
remote_files.upload = upload_half
publication.upload(Path(sys.argv[1]), sys.argv[2])
"""


def test_the_rerun_of_a_killed_upload_removes_what_it_had_copied(bucket, digits_model):
    done = subprocess.run([sys.executable, "-c", KILLED, digits_model, f"{bucket}/out"], check=False)
    assert done.returncode == -signal.SIGKILL
    assert set(remote_files.list_remote_files(bucket)) == {f"{bucket}/out/half", f"{bucket}/out.uploading"}
    toys.copy_model(model=digits_model, copied=f"{bucket}/out")
    names = set(remote_files.list_remote_files(bucket))
    assert f"{bucket}/out/model_card.json" in names
    assert not {f"{bucket}/out/half", f"{bucket}/out.uploading"} & names


def test_what_a_running_process_copies_stays(bucket, digits_model):
    remote_files.write_file(f"{bucket}/out/half", b"h")
    remote_files.write_file(f"{bucket}/out.uploading", staging.new_path(Path()).name.encode())
    with pytest.raises(ComponentError, match="out exists"):
        toys.copy_model(model=digits_model, copied=f"{bucket}/out")
    assert remote_files.read_file(f"{bucket}/out/half") == b"h"


def test_of_an_upload_that_fails_nothing_stays(digits_model, tmp_path):
    with pytest.raises(ComponentError, match="No space left on device"):
        toys.copy_model(model=digits_model, copied=f"full://{tmp_path}/out")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_store_that_does_not_answer_is_an_error_in_time(monkeypatch):
    with socket.socket() as silent:  # it accepts connections, and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for name, value in {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(remote_files, "ANSWER_S", 0.5)
        begun = time.monotonic()
        with pytest.raises(ComponentError, match=r"s3://silent: no answer in 0\.5 s"):
            remote_files.check_exists("s3://silent/data.csv")
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("name", ["a*", "what?", "[a]", "a\\b", "a\0b"])
def test_a_path_that_tensorflow_takes_for_a_pattern_is_refused(name, tmp_path):
    with pytest.raises(ComponentError, match="in a path"):
        remote_files.check_characters(str(tmp_path / name))
    remote_files.check_characters(str(tmp_path / "it's \u6570 {a} ]"))
    remote_files.check_characters("s3://bucket/[a]")
