"""Test docs/serving.md: the demonstration's server serves the newest version, and the registrations are valid."""

import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.components.pushes import version
from tests.distributions import install
from tfopt import runtimes
from tfopt.artifacts import Blessing, Model
from tfopt.component import find
from tfopt.components.push_model.component import push_model
from tfopt.components.push_model.registrations.kind import KINDS, parse_targets, register_with

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def send(url: str, content: dict | None = None) -> dict | str:
    data = json.dumps(content).encode() if content is not None else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.loads(response.read()) if content is not None else response.read().decode()


@pytest.fixture(scope="module")
def served(digits_model, digits_lite, tmp_path_factory):
    """Push two versions, serve the destination with the page's command, and return it with the address."""
    folder = tmp_path_factory.mktemp("served")
    for number, model in enumerate((digits_model, digits_lite)):
        blessing = Blessing(folder / f"blessing {number}")
        blessing.write({"blessed": True, "reason": "a test", "model_digest": Model(model).digest})
        push_model(model, blessing.path, folder / f"pushed {number}", destination=str(folder / "digits"))
    port = free_port()
    command = [sys.executable, ROOT / "docs" / "serving" / "server.py", folder / "digits", str(port)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            assert process.poll() is None, (folder / "log").read_text()
            try:
                send(f"{url}/health")
                break
            except OSError:
                time.sleep(0.1)
        yield folder / "digits", url
    finally:
        process.send_signal(2)
        process.wait(60)


def test_the_server_runs_the_newest_version(served):
    destination, url = served
    images = np.random.default_rng(0).integers(0, 17, (3, 8, 8, 1)).astype("float32")
    response = send(f"{url}/predict", {"image": images.tolist()})
    assert response.pop("version") == 2
    model = runtimes.load(Model.open(destination / "2"))
    expected = model.run({"image": images})
    assert set(response) == set(expected)
    for name, values in response.items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-5)


def test_a_request_without_the_input_is_an_error_and_the_server_goes_on(served):
    _, url = served
    with pytest.raises(urllib.error.HTTPError):
        send(f"{url}/predict", {"picture": []})
    assert send(f"{url}/health") == "ok"


def test_the_commands_name_files_that_exist():
    commands = [line for block in re.findall(r"```console\n(.*?)```", PAGE, re.S) for line in block.splitlines()]
    assert [words for words in commands if words.startswith("python ")]
    for path in re.findall(r"python (\S+)", "\n".join(commands)):
        assert (ROOT / path).is_file()


def test_the_run_file_of_the_page_has_valid_targets_and_the_table_has_all_kinds():
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    values = yaml.safe_load(block)["values"]
    parameters = find("push_model").parameters
    for name in ("register", "model_name", "destination"):
        parameters[name].check(values[name], "push_model")
    assert sorted(text.partition("=")[0] for text in values["register"]) == sorted(KINDS)
    assert sorted(re.findall(r"^\| `([a-z-]+)=", PAGE, re.M)) == sorted(KINDS)


def test_the_kind_of_the_page_registers(tmp_path, monkeypatch):
    module, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    [(group, name, value), *_] = re.findall(r'entry-points\."(.+?)"\]\n(\w+) = "(.+?)"', PAGE)
    install(tmp_path / "site", monkeypatch, group, {name: value}, our_catalog=module)
    (target,) = parse_targets([f"catalog={tmp_path / 'catalog'}"])
    assert register_with(target, version()) == f"a line in {tmp_path / 'catalog'}"
    assert (tmp_path / "catalog").read_text() == "digits 8 s3://bucket/models/digits/8 {}\n"
