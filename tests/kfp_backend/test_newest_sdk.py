"""Compile with the newest SDK of KFP 2, and give the result to the API server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kfp import Client

from tests.kfp_backend.conftest import REPOSITORY
from tests.kfp_backend.test_uploads import COMPILED, start, steps_of_workflow, tasks_and_drivers

pytestmark = [pytest.mark.nightly, pytest.mark.engines, pytest.mark.timeout(900)]
PACKAGES = ("kfp", "kfp-pipeline-spec", "kfp-server-api")


@pytest.fixture(scope="module")
def newest_sdk(tmp_path_factory) -> Path:
    """Install the newest SDK into a folder of its own, next to the environment's other packages."""
    folder = tmp_path_factory.mktemp("sdk")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    subprocess.run([*command, *(f"{package}<3" for package in PACKAGES)], check=True)
    return folder


@pytest.mark.parametrize("name", [file.stem for file in COMPILED if file.parent.name == "pipelines"])
def test_the_server_compiles_what_the_newest_sdk_writes(backend, newest_sdk, tmp_path, name):
    file = tmp_path / f"{name}.yaml"
    environment = {**os.environ, "PYTHONPATH": f"{newest_sdk}:{REPOSITORY}"}
    version = [sys.executable, "-c", "import kfp; print(kfp.__version__, kfp.__file__)"]
    printed = subprocess.run(version, env=environment, check=True, capture_output=True, text=True).stdout
    assert printed.strip().endswith(f"{newest_sdk}/kfp/__init__.py")
    options = ["--kfp-option", "timeout=1h", "--kfp-option", "node.pool=cpu", "--kfp-option", "push_model:volume.m=/m"]
    compile_command = [sys.executable, "-m", "tfopt.run", "compile", name, "-o", str(file), *options]
    subprocess.run(compile_command, env=environment, check=True)
    assert f"sdkVersion: kfp-{printed.split()[0]}" in file.read_text()
    run_id = start(Client(backend.url), file, f"newest-{name}".replace("_", "-"))
    assert steps_of_workflow(backend, run_id) == tasks_and_drivers(file)
