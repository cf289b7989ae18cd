"""Compile with the newest SDK of KFP 2, and give the result to the API server."""

import subprocess
import sys

import pytest
from kfp import Client

from tests.kfp_backend.runs import install_sdk
from tests.kfp_backend.test_uploads import COMPILED, start, steps_of_workflow, tasks_and_drivers

pytestmark = [pytest.mark.nightly, pytest.mark.engines, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def newest_sdk(tmp_path_factory) -> dict[str, str]:
    """Return the environment of a process that imports the newest SDK."""
    return install_sdk(tmp_path_factory.mktemp("sdk"), "newest")


@pytest.mark.parametrize("name", [file.stem for file in COMPILED if file.parent.name == "pipelines"])
def test_the_server_compiles_what_the_newest_sdk_writes(backend, newest_sdk, tmp_path, name):
    file = tmp_path / f"{name}.yaml"
    version = [sys.executable, "-c", "import kfp; print(kfp.__version__, kfp.__file__)"]
    printed = subprocess.run(version, env=newest_sdk, check=True, capture_output=True, text=True).stdout
    folder = newest_sdk["PYTHONPATH"].partition(":")[0]
    assert printed.strip().endswith(f"{folder}/kfp/__init__.py")
    options = ["--kfp-option", "timeout=1h", "--kfp-option", "node.pool=cpu", "--kfp-option", "push_model:volume.m=/m"]
    compile_command = [sys.executable, "-m", "tfopt.run", "compile", name, "-o", str(file), *options]
    subprocess.run(compile_command, env=newest_sdk, check=True)
    assert f"sdkVersion: kfp-{printed.split()[0]}" in file.read_text()
    run_id = start(Client(backend.url), file, f"newest-{name}".replace("_", "-"))
    assert steps_of_workflow(backend, run_id) == tasks_and_drivers(file)
