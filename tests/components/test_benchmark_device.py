"""Test `benchmark` on a device: another machine over ssh, here an sshd of this machine."""

import io
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.process_tree import wait_until
from tests.ssh_server import CORE, PROGRAM, SshServer
from tfopt.artifacts import Model
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.component import find
from tfopt.components.benchmark import device_server
from tfopt.components.benchmark.device import Device, connect
from tfopt.components.benchmark.device_server import DeviceServer
from tfopt.components.benchmark.measured_model import MeasuredModel
from tfopt.components.benchmark.model_process import DeviceError
from tfopt.errors import ComponentError, MachineError
from tfopt.processes import ssh_worker
from tfopt.processes.ssh_worker import SshAddress, _CheckedUnpickler
from tfopt.processes.worker_process import CallFailed

needs_server = pytest.mark.skipif(not PROGRAM, reason="openssh-server is not installed")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with SshServer(tmp_path_factory.mktemp("ssh")) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{server.commands}:{os.environ['PATH']}")
        yield server


def test_a_device_is_checked_when_a_pipeline_is_built():
    for text in ("pi@board", "ssh://", "ssh://a b", "ssh://-oProxyCommand=x", "ssh://board:", "adb://1"):
        with pytest.raises(ComponentError) as refusal:
            find("benchmark").check({"device": text})
        assert "ssh://[USER@]HOST[:PORT]" in refusal.value.expected
    assert SshAddress.parse("ssh://[::1]:22/opt/a b/python") == SshAddress("ssh://[::1]:22", "/opt/a b/python")


@needs_server
def test_a_command_measures_on_a_device_and_reports_that_machine(server, models, tmp_path, caplog):
    folder = tmp_path / "a folder"
    folder.mkdir()
    small, large = (Path(shutil.copy(models[name], folder)) for name in ("small", "large"))
    words = ["--baseline", small, "--candidates", large, "--benchmark", folder / "out", "--batch-sizes", "1"]
    words += ["--seconds", "0.2", "--rounds", "8", "--device", server.address]
    end = subprocess.run(
        [sys.executable, "-m", "tfopt.run", "benchmark", *map(str, words)], capture_output=True, text=True, check=False
    )
    assert end.returncode == 0, end.stderr
    assert f"copying {large}" in end.stderr
    report = json.loads((folder / "out" / "benchmark.json").read_text())
    assert report["environment"]["device"] == server.address
    assert report["environment"]["cpu"]["usable_cores"] == 1 and report["environment"]["affinity"] == [CORE]
    assert report["models"][1]["error"] is None
    assert report["models"][1]["speedup"]["1"]["value"] < 1
    wait_until(lambda: not server.running())
    assert not list(server.cache.glob(".*"))
    with connect(server.address, [Model(small)], str(tmp_path)) as device, caplog.at_level("INFO"):
        assert isinstance(device, Device)
        place = device.place_model(Model(large))
        (tmp_path / "model.plan").touch()
        device._worker.missing.append("tensorrt")  # also where this Python has it
        with device.runtimes([CORE], tmp_path) as runtimes, pytest.raises(CallFailed, match="on the device: tensorrt"):
            runtimes.process(Model(tmp_path / "model.plan"), tmp_path / "log").renew()
    assert Path(place).read_bytes() == large.read_bytes()
    assert "copying" not in caplog.text


@needs_server
@pytest.mark.parametrize(
    ("address", "received", "fix"),
    [
        ("ssh://127.0.0.1:1", "Connection refused", "ssh -o BatchMode=yes ssh://127.0.0.1:1 true"),
        ("ssh://stranger", "Permission denied", "ssh -o BatchMode=yes ssh://stranger true"),
        ("ssh://board/no/python", "/no/python", "name the program: ssh://[USER@]HOST[:PORT]/PATH/OF/PYTHON"),
        ("ssh://board{folder}/bare", "without numpy, ai_edge_litert", "-m pip install numpy ai-edge-litert"),
        ("ssh://board{folder}/old", "Python 3.8.1", "install such a Python there"),
        ("ssh://board{folder}/silent", "no answer in 1 seconds", "ssh -o BatchMode=yes ssh://board true"),
    ],
)
def test_an_unfit_device_is_refused_at_once(server, tmp_path, monkeypatch, address, received, fix):
    if "silent" in address:
        monkeypatch.setattr(ssh_worker, "ANSWER_S", 1.0)
    (tmp_path / "model.tflite").touch()
    older = "import sys; sys.version_info = (3, 8, 1); del sys.argv[0]; exec(sys.argv[0])"
    programs = {
        "bare": f'exec "{sys.executable}" -I -S "$@"',
        "old": f"shift; exec '{sys.executable}' -c '{older}' \"$@\"",
        "silent": "exec sleep 60",
    }
    for name, line in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    with (
        pytest.raises(MachineError) as refusal,
        connect(address.format(folder=tmp_path), [Model(tmp_path / "model.tflite")], str(tmp_path)),
    ):
        pass
    assert received in refusal.value.received
    assert fix in refusal.value.fix


@needs_server
def test_a_cut_connection_ends_the_measurement_and_all_processes_on_the_device(server, models, tmp_path):
    model = Model(models["small"])
    with connect(server.address, [model], str(tmp_path)) as device:
        with device.runtimes(device.choose_cores(1), tmp_path) as runtimes:
            process = runtimes.process(model, tmp_path / "log")
        process.renew()
        process.call("load", model.uri, "serving_default", 1)
        assert len(server.running()) >= 3  # the server, the process of the runtime, and its fork
        (tmp_path / "inputs").write_bytes(pickle.dumps({"x": np.zeros((1, 64), np.float32)}))
        process.call("feed", str(tmp_path / "inputs"))
        process.call("prepare", 1)
        (client,) = [child for child in psutil.Process().children() if child.name() == "ssh"]
        threading.Timer(0.3, client.kill).start()
        measured = MeasuredModel("candidate", model, process, is_baseline=False)
        with pytest.raises(DeviceError) as loss, measured.recording_failure():
            process.call("burst", 60.0, 0.0)
    assert "the connection ended during the measurement" in loss.value.received
    wait_until(lambda: not server.running())
    assert not list(server.cache.glob(".*"))


@needs_server
def test_a_killed_client_leaves_no_process_on_the_device(server, tmp_path):
    (tmp_path / "model.tflite").touch()
    code = (
        "import time\nfrom tfopt.artifacts import Model\nfrom tfopt.components.benchmark.device import connect\n"
        f"with connect({server.address!r}, [Model({str(tmp_path / 'model.tflite')!r})], {str(tmp_path)!r}) as device:\n"
        "    print(device.choose_cores(1), flush=True)\n    time.sleep(60)"
    )
    client = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert client.stdout.readline() == f"[{CORE}]\n".encode()
    assert server.running()
    client.send_signal(signal.SIGKILL)
    client.wait()
    wait_until(lambda: not server.running())


@needs_server
@pytest.mark.nightly
def test_a_silent_connection_is_lost_after_15_seconds(server, tmp_path):
    (tmp_path / "model.tflite").touch()
    with connect(server.address, [Model(tmp_path / "model.tflite")], str(tmp_path)) as device:
        sessions = server.sessions()
        for session in sessions:
            session.suspend()
        with pytest.raises(DeviceError):
            device.choose_cores(1)
        for session in sessions:
            session.resume()


def test_the_cache_of_a_device_keeps_what_is_in_use(tmp_path, monkeypatch):
    monkeypatch.setattr(device_server, "CACHE_BYTES", 250)
    cache = tmp_path / "cache"
    (cache / ".partial").mkdir(parents=True)
    for name, second in (("oldest", 1), ("old", 2), ("used", 0)):
        (cache / name).mkdir()
        (cache / name / "file").write_bytes(bytes(100))
        os.utime(cache / name, (second, second))
    with DeviceServer(cache, tmp_path / "folder") as server:
        assert server.find("missing") is None
        assert server.find("used") == str(cache / "used")
        server.write("inner/file", bytes(60))
        server.write("inner/file", bytes(40))
        assert server.finish("new") == str(cache / "new")
        assert {path.name for path in cache.iterdir()} == {".partial", "used", "new"}
        assert (cache / "new" / "inner" / "file").stat().st_size == 100
        server.write("file", bytes(400))
        server.finish("larger than all")
    assert {path.name for path in cache.iterdir()} == {".partial", "used", "new", "larger than all"}


def test_answers_of_a_device_run_no_code_here():
    facts = {"inputs": {"x": TensorSpec("float32", (None, 2))}, "seconds": 1.5}
    for value in (np.arange(3), facts, ("failed", "text")):
        loaded = _CheckedUnpickler(io.BytesIO(pickle.dumps(value))).load()
        assert repr(loaded) == repr(value)
    assert _CheckedUnpickler(io.BytesIO()).find_class("tfopt.errors", "ComponentError") is ComponentError
    with pytest.raises(MachineError, match=r"posix\.system"):
        _CheckedUnpickler(io.BytesIO(pickle.dumps(os.system))).load()
