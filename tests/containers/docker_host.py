"""A Docker daemon and the project's images, on a machine that may have neither a daemon nor a registry.

A daemon that answers is used. Otherwise ``dockerd`` is started on a socket of its own, and stopped at the end. The base
image that the Dockerfiles name is pulled where a registry answers; elsewhere debootstrap makes one, which is imported
under that very name. So the Dockerfiles are built as they are. What this machine needs to reach packages, a CA and
pip's settings, goes into a build as secrets, and is in no image.
"""

import contextlib
import json
import os
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import tfopt

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "containers"  # layers outlive a run, so the next one builds in seconds
BAKE = json.loads((ROOT / "deploy" / "images" / "docker-bake.json").read_text())
BASE = "python:3.11-slim-bookworm"
SUITE = "bookworm"  # from the mirror that debootstrap knows


@contextlib.contextmanager
def daemon() -> Iterator[None]:
    """Have a daemon answer for as long as this lasts."""
    if _answers():
        yield
        return
    KEPT.mkdir(parents=True, exist_ok=True)
    socket, state = "unix:///run/tfopt-docker.sock", "/run/tfopt-docker"
    places = ["--host", socket, "--pidfile", f"{state}.pid", "--exec-root", state, "--data-root", str(KEPT / "docker")]
    os.environ["DOCKER_HOST"] = socket
    with (KEPT / "dockerd.log").open("w") as log:
        process = subprocess.Popen(["dockerd", *places], stdout=log, stderr=log)
    try:
        give_up = time.monotonic() + 60
        while not _answers():
            if process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"dockerd does not answer:\n{(KEPT / 'dockerd.log').read_text()[-2000:]}")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait(60)
        del os.environ["DOCKER_HOST"]


def build(kind: str) -> str:
    """Build the image of a kind, those it stands on first, as ``docker-bake.json`` says; return its name."""
    target = BAKE["target"][kind]
    for name, parent in target.get("contexts", {}).items():
        subprocess.run(["docker", "tag", build(parent.removeprefix("target:")), name], check=True)
    if not _has(BASE):
        _get_base()
    facts = {"VERSION": tfopt.__version__, "REVISION": _revision()}
    tag = f"tfopt-{kind}:{tfopt.__version__}"
    words = ["build", "--network", "host", "--tag", tag, "--file", target["dockerfile"], *_secrets()]
    words += [word for name in target.get("args", {}) for word in ("--build-arg", f"{name}={facts[name]}")]
    done = subprocess.run([_builder(), *words, "."], cwd=ROOT, env=_buildkit(), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{target['dockerfile']} does not build:\n{done.stderr[-4000:]}")
    return tag


def _answers() -> bool:
    return subprocess.run(["docker", "version"], capture_output=True).returncode == 0


def _has(image: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", image], capture_output=True).returncode == 0


def _get_base() -> None:
    if subprocess.run(["docker", "pull", "--quiet", BASE], capture_output=True).returncode == 0:
        return
    folder = KEPT / "base"
    shutil.rmtree(folder, ignore_errors=True)
    packages = "ca-certificates,python3,python3-dev,python3-venv"
    words = ["debootstrap", "--variant=minbase", f"--include={packages}", SUITE, str(folder)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    (folder / "usr/bin/python").symlink_to("python3")
    with subprocess.Popen(["tar", "-C", str(folder), "-c", "."], stdout=subprocess.PIPE) as packed:
        subprocess.run(["docker", "import", "-", BASE], check=True, stdin=packed.stdout, stdout=subprocess.DEVNULL)
    shutil.rmtree(folder)


def _secrets() -> list[str]:
    """Pip's settings of this machine, and the certificates it trusts. Only indexes that a build can reach."""
    KEPT.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    found = dict(line.split("=", 1) for line in listed.stdout.splitlines())
    found = {name.rpartition(".")[2]: value.strip("'") for name, value in found.items()}
    lines = [f"{name} = {found[name]}" for name in ("index-url", "trusted-host") if name in found]
    (KEPT / "pip.conf").write_text("\n".join(["[global]", "cert = /run/secrets/ca", *lines, ""]))
    trusted = found.get("cert") or ssl.get_default_verify_paths().cafile
    return ["--secret", f"id=pip,src={KEPT / 'pip.conf'}", "--secret", f"id=ca,src={trusted}"]


def _builder() -> str:
    """The first ``docker`` that can build with BuildKit: newer ones need the plugin buildx for that."""
    found = [str(file) for folder in os.get_exec_path() if (file := Path(folder, "docker")).is_file()]
    for docker in found:
        asked = subprocess.run([docker, "build", "--help"], env=_buildkit(), capture_output=True, text=True)
        if asked.returncode == 0 and "--secret" in asked.stdout:
            return docker
    raise RuntimeError(f"no docker with BuildKit among {found}: install buildx, or Debian's docker.io")


def _buildkit() -> dict[str, str]:
    return {**os.environ, "DOCKER_BUILDKIT": "1"}


def _revision() -> str:
    asked = ["git", "rev-parse", "HEAD"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":  # make images
    with daemon():
        for wanted in sys.argv[1:]:
            print(build(wanted))
