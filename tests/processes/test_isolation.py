"""Test that processes which run models that are not trusted cannot write elsewhere or connect."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests import toys
from tests.runtimes import formulas
from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.components.benchmark.machine_conditions import choose_cores
from tfopt.components.benchmark.model_process import ModelProcess, RuntimeProcesses
from tfopt.errors import AttemptError
from tfopt.execution import parity_check
from tfopt.keras_models.model_code import trusted_code
from tfopt.processes import isolation
from tfopt.processes.isolation import Limits, landlock_version, limited_children
from tfopt.processes.preloaded_processes import preloading
from tfopt.processes.subprocess_call import run_in_child, run_isolated
from tfopt.runtimes.environment import add_variables
from tfopt.saved_models import effects

needs_landlock = pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
needs_tcp = pytest.mark.skipif(
    landlock_version() < isolation.TCP, reason="Landlock of this kernel has no rules for TCP"
)


@pytest.fixture(scope="module", params=["fork", "new process"])
def processes(request):
    """Children are forks of a server, as during a run, or new processes."""
    with preloading() if request.param == "fork" else contextlib.nullcontext():
        yield


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    """A SavedModel that writes to the file that it gets, whether that works, and the folder of the model."""

    def serve(path, x):
        with tf.control_dependencies([tf.io.write_file(path[0], "text")]):
            return {"y": tf.identity(x) * 2.0}

    specs = {"path": ([None], tf.string), "x": ([None], tf.float32)}
    return formulas.saved(tmp_path_factory.mktemp("writer"), serve, **specs)


def worked(action, *arguments):
    try:
        action(*arguments)
    except OSError:
        return False
    return True


def effects_at(folder: Path, port: int):
    """Return what works: writes to a folder, removal, and so on, of the files ``old`` and ``empty`` there."""
    return {
        "write": worked((folder / "new").write_text, "text"),
        "overwrite": worked((folder / "old").write_text, "text"),
        "truncate": worked(os.truncate, folder / "old", 0),
        "rename": worked((folder / "old").rename, folder / "older"),
        "remove": worked((folder / "empty").unlink),
        "folder": worked((folder / "folder").mkdir),
        "link": worked((folder / "link").symlink_to, "/"),
        "connect": worked(lambda: socket.create_connection(("127.0.0.1", port)).close()),
        "listen": worked(lambda: socket.create_server(("127.0.0.1", 0)).close()),
        "signal": worked(os.kill, os.getppid(), 0),
        "temporary": worked(lambda: tempfile.TemporaryFile().close()),
        "call": worked(Path(os.environ["TMPDIR"]).with_name("call").write_text, "pickle of another call"),
        "null": worked(Path("/dev/null").write_text, "text"),
        "read": worked(Path("/etc/passwd").read_text),
    }


def run_writer(model: Path, file: Path):
    """Run the model in this process without the check of its operators."""
    effects.KINDS.clear()
    with runtimes.load(Model(model)) as runtime:
        return runtime.run({"path": np.array([str(file)], object), "x": np.ones(1, np.float32)})["y"]


@pytest.fixture
def folders(tmp_path):
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "old").write_text("old")
        (tmp_path / name / "empty").touch()
    return tmp_path / "own", tmp_path / "other"


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@needs_tcp
def test_a_limited_process_writes_to_its_folders_only_and_connects_to_nothing(processes, folders, port):
    own, other = folders
    with limited_children(Limits((str(own),))):
        allowed, refused = (run_in_child(effects_at, folder, port, doing="x") for folder in folders)
    network = dict.fromkeys(("connect", "listen"), False) | {"call": False}
    signals = {"signal": False} if landlock_version() >= isolation.SCOPES else {}
    always = {"temporary", "null", "read"}
    assert allowed == {name: True for name in allowed} | network | signals
    assert refused == {name: name in always for name in refused} | ({} if signals else {"signal": True})
    assert (other / "old").read_text() == "old" and sorted(other.iterdir()) == [other / "empty", other / "old"]


@needs_tcp
def test_tcp_is_possible_if_it_is_needed_and_without_limits_everything(processes, folders, port):
    own, other = folders
    with limited_children(Limits((), tcp=True)):
        connected = run_in_child(effects_at, other, port, doing="x")
    assert connected["connect"] and connected["listen"] and not connected["write"]
    with limited_children(None):
        assert all(run_in_child(effects_at, own, port, doing="x").values())


@needs_landlock
def test_a_model_with_an_operator_that_no_list_knows_cannot_write_elsewhere(processes, writer, tmp_path):
    inside, outside = tmp_path / "own" / "file", tmp_path / "file"
    inside.parent.mkdir()
    with limited_children(Limits((str(inside.parent),))):
        assert run_in_child(run_writer, writer, inside, doing="running") == 2.0
        with pytest.raises(AttemptError, match="Permission denied"):
            run_in_child(run_writer, writer, outside, doing="running")
    assert inside.read_text() == "text" and not outside.exists()


def has_no_new_rights(pid):
    return "NoNewPrivs:\t1" in Path(f"/proc/{pid}/status").read_text()


@needs_landlock
@pytest.mark.parametrize("trust", [False, True])
def test_workers_that_run_a_model_are_limited_unless_it_is_trusted(processes, trust, tmp_path, monkeypatch):
    monkeypatch.setenv("TFOPT_TRUST_MODEL_CODE", str(int(trust)))
    configured = tmp_path / "model"
    formulas.saved(configured, lambda x: {"y": x * 2.0}, x=([None], tf.float32))
    add_variables(configured, {"TF_ENABLE_ONEDNN_OPTS": "0"})
    with runtimes.load(Model(configured)) as runtime:
        process = runtime._process
        assert has_no_new_rights(getattr(process, "_pid", None) or process._process.pid) != trust
        assert runtime.run({"x": np.ones(1, np.float32)})["y"] == 2.0


@needs_landlock
@pytest.mark.parametrize("trust", [False, True])
def test_measured_models_are_limited_unless_they_are_trusted(trust, tmp_path, monkeypatch):
    monkeypatch.setenv("TFOPT_TRUST_MODEL_CODE", str(int(trust)))
    saved = formulas.saved(tmp_path / "saved", lambda x: {"y": x * 2.0}, x=([None], tf.float32))
    model = formulas.lite(tmp_path / "model.tflite", saved)
    with (
        RuntimeProcesses(choose_cores(1), tmp_path) as origins,
        ModelProcess(model, origins, tmp_path / "log") as process,
    ):
        process.renew()
        assert has_no_new_rights(process._fork._pid) != trust


@needs_landlock
@pytest.mark.parametrize(("engine", "trust"), [("command", False), ("command", True), ("kfp", False)])
def test_the_process_of_a_step_writes_to_its_outputs_only(engine, trust, writer, tmp_path):
    """Write to another folder in the component itself, and in its child process."""
    other, report, answer = (tmp_path / name for name in ("other", "outputs/report", "kfp/answer.json"))
    other.mkdir()
    words = ["--model", str(writer), "--report", str(report), "--folder", str(other)]
    if engine == "kfp":
        artifacts = [
            {name: {"artifacts": [{"uri": str(uri)}]}} for name, uri in (("model", writer), ("report", report))
        ]
        inputs = {"artifacts": artifacts[0], "parameterValues": {"folder": str(other)}}
        outputs = {"artifacts": artifacts[1], "outputFile": str(answer)}
        words = ["--executor-input", json.dumps({"inputs": inputs, "outputs": outputs})]
    command = [sys.executable, "-P", "-m", "tfopt.run", "tests.toys:write_elsewhere", *words]
    command += ["--trust-model-code"] if trust else []
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert run.returncode == 0, run.stderr
    assert toys.Report(report).read() == {"self": trust, "child": trust, "own": True}
    assert len(list(other.iterdir())) == 2 * trust and answer.exists() == (engine == "kfp")
    folders = ["kfp"] * (engine == "kfp") + ["other", "outputs"]
    assert sorted(path.name for path in tmp_path.iterdir()) == folders  # no temporary ones


@needs_landlock
def test_a_limited_command_shows_the_log_of_libraries_that_it_cannot_keep(tmp_path, writer):
    command = [sys.executable, "-P", "-m", "tfopt.run", "tests.toys:write_elsewhere", "--model", writer]
    command += ["--report", tmp_path / "outputs" / "report", "--folder", "warn"]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert (
        run.returncode == 1
        and "libraries end with\n" in run.stderr
        and "about to fail\ntfopt: RuntimeError: failed" in run.stderr
    )
    assert [path.name for path in tmp_path.iterdir()] == ["outputs"]


def test_without_landlock_everything_runs_and_one_line_says_so(folders, port, monkeypatch, caplog):
    monkeypatch.setattr(isolation, "landlock_version", lambda: 0)
    isolation.warn_without_isolation.cache_clear()
    with caplog.at_level("INFO"):
        isolation.warn_without_isolation()
        isolation.warn_without_isolation()
        isolation.isolate(Limits(()))
    assert len(caplog.records) == 1 and "no Landlock" in caplog.text and isolation.describe() == "none"
    assert all(effects_at(folders[0], port).values() if "TMPDIR" in os.environ else [True])
    assert isolation.limited_command(Limits(())) == []
    isolation.warn_without_isolation.cache_clear()


def own_id():
    return os.getpid()


def child_limits(*_, **__):
    return {"outputs": {}, "limits": isolation.limits_of_children()}


@pytest.mark.parametrize("trust", [False, True])
def test_the_comparison_of_a_model_with_its_parent_may_write_nothing(trust, tmp_path, monkeypatch):
    (tmp_path / "model.tflite").write_bytes(b"\0\0\0\0TFL3")
    monkeypatch.setattr(parity_check, "run_isolated", child_limits)
    copy, model = Model(tmp_path / "copy"), Model(tmp_path / "model.tflite")
    with trusted_code(trust):
        parity_check.check_parity(toys.copy_model, copy, {"model": model}, {})
    assert copy.metadata["verified"]["limits"] == (None if trust else Limits(()))


@needs_landlock
def test_a_command_that_must_not_be_limited_runs_models_in_another_process():
    with limited_children(Limits(())), isolation.step_process():
        assert run_isolated(own_id, doing="x") != os.getpid()
    with limited_children(Limits(())):
        assert run_isolated(own_id, doing="x") == os.getpid()  # called in Python
