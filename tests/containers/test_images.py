"""Test each image: it starts with the limits of Kubernetes, and contains exactly the packages of its list."""

import json
import re
import subprocess
import sys
import time

import pytest

import tfopt
from tests.containers import docker_host
from tests.containers.conftest import run

pytestmark = pytest.mark.containers
KINDS = ("tf", "beam", "tfx", "gpu")
IMPORTS = {
    "tf": (
        "tensorflow_model_optimization, ai_edge_litert.interpreter, ai_edge_quantizer, onnxruntime, tf2onnx, "
        "tfopt.components.export_openvino.quantization"
    ),
    "beam": "apache_beam",
    "tfx": "tfx.v1",
    "gpu": "tensorflow, apache_beam, onnxruntime, cuda.bindings.runtime",
}


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    return request.param


def test_an_image_lists_the_components_on_a_read_only_root(image, kind):
    listed = run(image(kind), "python", "-m", "tfopt.run", "list")
    here = subprocess.run([sys.executable, "-m", "tfopt.run", "list"], capture_output=True, text=True, check=True)
    assert listed.stdout == here.stdout, listed.stderr


def test_an_image_imports_its_frameworks(image, kind):
    started = time.monotonic()
    imported = run(image(kind), "python", "-c", f"import {IMPORTS[kind]}")
    assert imported.returncode == 0, imported.stderr
    print(f"\n{kind}: {_inspect(image(kind))['Size'] / 1e9:.2f} GB, imports in {time.monotonic() - started:.1f} s")


def test_an_image_has_no_entrypoint_but_a_user_without_rights_and_labels(image, kind):
    config = _inspect(image(kind))["Config"]
    assert not config.get("Entrypoint")
    assert config["User"] == "10001:10001"
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}
    assert labels["title"] == f"tfopt-{kind}"
    assert labels["version"] == tfopt.__version__
    assert labels["licenses"] == "Apache-2.0"
    assert re.fullmatch("[0-9a-f]{40}", labels["revision"])


def test_an_image_contains_exactly_the_packages_of_its_list(image, kind):
    listed = json.loads(run(image(kind), "pip", "list", "--format", "json").stdout)
    installed = {(_plain(package["name"]), package["version"]) for package in listed}
    expected = {(_plain(name), version) for name, version in _pins(kind)} | {("tfopt", tfopt.__version__)}
    assert {package for package in installed if package[0] != "pip"} == {
        package for package in expected if package[0] != "pip"
    }


def test_an_image_contains_no_secrets_of_the_building_machine(image, kind):
    command = "env; find / -xdev ( -name pip.conf -o -path '/run/secrets/*' ) -not -path '/proc/*'"
    output = run(image(kind), "sh", "-c", command.replace("(", r"\(").replace(")", r"\)")).stdout
    assert "secrets" not in output
    assert "pip.conf" not in output
    secrets = subprocess.run(["docker", "history", "--no-trunc", image(kind)], capture_output=True, text=True).stdout
    assert "BEGIN CERTIFICATE" not in secrets


@pytest.mark.parametrize("package", ["apache_beam", "tfx"])
def test_the_smallest_image_has_neither_beam_nor_tfx(image, package):
    refused = run(image("tf"), "python", "-c", f"import {package}")
    assert f"No module named '{package}'" in refused.stderr


def _inspect(tag: str) -> dict:
    return json.loads(subprocess.run(["docker", "image", "inspect", tag], capture_output=True, check=True).stdout)[0]


def _pins(kind: str) -> list[tuple[str, str]]:
    """Return name and version of each package of an image's lists."""
    lists = [f"requirements/{kind}.txt", *([docker_host.TENSORRT] if kind == "gpu" and docker_host.TENSORRT else [])]
    text = "\n".join((docker_host.ROOT / name).read_text() for name in lists)
    return [pin for pin in re.findall(r"^([\w.-]+)==(\S+)", text, re.M) if pin[0] != "wheel-stub"]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
