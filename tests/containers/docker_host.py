"""A Docker daemon and the project's images, on a machine that may have neither a daemon nor a registry.

A running daemon is used. Otherwise ``dockerd`` is started on a socket of its own, and stopped at the end. The base
image of the Dockerfiles is pulled if a registry responds. Otherwise debootstrap creates one, which is passed to the
Dockerfiles in its place. The certificates and pip settings of this machine are passed to a
build as secrets, and are in no image.

The image ``gpu`` is built without TensorRT, whose libraries come from NVIDIA's package index, unless the environment
variable TENSORRT names the list of its packages.

The variable ARCHIVE names a file that gets all images that were built, for containerd (`tests/cluster`).
"""

import contextlib
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import tfopt

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "build" / "containers"  # with the layers of earlier builds a build takes seconds
BAKE = json.loads((ROOT / "deploy" / "images" / "docker-bake.json").read_text())
_BASE = re.search(r"^ARG PYTHON=(\S+)", (ROOT / BAKE["target"]["tf"]["dockerfile"]).read_text(), re.M)
assert _BASE
BASE = _BASE[1]
LOCAL_BASE = BASE.partition("@")[0]
TENSORRT = os.environ.get("TENSORRT", "")
SUITE = LOCAL_BASE.rpartition("-")[
    2
]  # of Debian, from the mirror that debootstrap knows; it must have the Python of BASE


@contextlib.contextmanager
def daemon() -> Iterator[None]:
    """Start a daemon unless one is running, and stop it at the end."""
    if _is_running():
        yield
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    socket, state = "unix:///run/tfopt-docker.sock", "/run/tfopt-docker"
    options = [
        "--host",
        socket,
        "--pidfile",
        f"{state}.pid",
        "--exec-root",
        state,
        "--data-root",
        str(CACHE / "docker"),
    ]
    os.environ["DOCKER_HOST"] = socket
    with (CACHE / "dockerd.log").open("w") as log:
        process = subprocess.Popen(["dockerd", *options], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not _is_running():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"dockerd does not respond:\n{(CACHE / 'dockerd.log').read_text()[-2000:]}")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait(60)
        del os.environ["DOCKER_HOST"]


def build(kind: str, *, folder: Path = ROOT, tensorrt: str = TENSORRT, suffix: str = "") -> str:
    """Build the image of a kind after its base images, according to ``docker-bake.json``; return its name.

    Args:
        kind: The kind.
        folder: The build context.
        tensorrt: The list of TensorRT's packages, in the folder; empty for none.
        suffix: What to add to the tag, which is the version.
    """
    target = BAKE["target"][kind]
    for name, parent in target.get("contexts", {}).items():
        subprocess.run(["docker", "tag", build(parent.removeprefix("target:")), name], check=True)
    base = next(filter(_exists, (BASE, LOCAL_BASE)), None) or _get_base()
    facts = {"VERSION": tfopt.__version__, "REVISION": _revision(), "TENSORRT": tensorrt}
    tag = f"tfopt-{kind}:{tfopt.__version__}{suffix}"
    words = ["build", "--network", "host", "--tag", tag, "--file", target["dockerfile"], *_secrets()]
    words += ["--build-arg", f"PYTHON={base}"] if base == LOCAL_BASE and "contexts" not in target else []
    words += [word for name in target.get("args", {}) for word in ("--build-arg", f"{name}={facts[name]}")]
    done = subprocess.run([_builder(), *words, "."], cwd=folder, env=_buildkit(), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{target['dockerfile']} does not build:\n{done.stderr[-4000:]}")
    return tag


def _is_running() -> bool:
    return subprocess.run(["docker", "version"], capture_output=True).returncode == 0


def _exists(image: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", image], capture_output=True).returncode == 0


def _get_base() -> str:
    if subprocess.run(["docker", "pull", "--quiet", BASE], capture_output=True).returncode == 0:
        return BASE
    folder = CACHE / "base"
    shutil.rmtree(folder, ignore_errors=True)
    packages = "ca-certificates,python3,python3-dev,python3-venv"
    words = ["debootstrap", "--variant=minbase", f"--include={packages}", SUITE, str(folder)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    (folder / "usr/bin/python").symlink_to("python3")
    with subprocess.Popen(["tar", "-C", str(folder), "-c", "."], stdout=subprocess.PIPE) as packed:
        subprocess.run(
            ["docker", "import", "-", LOCAL_BASE], check=True, stdin=packed.stdout, stdout=subprocess.DEVNULL
        )
    shutil.rmtree(folder)
    return LOCAL_BASE


def _secrets() -> list[str]:
    """Return the options that pass pip's index settings and the trusted certificates of this machine to a build."""
    CACHE.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    settings = dict(line.split("=", 1) for line in listed.stdout.splitlines())
    settings = {name.rpartition(".")[2]: value.strip("'") for name, value in settings.items()}
    lines = [f"{name} = {settings[name]}" for name in ("index-url", "trusted-host") if name in settings]
    (CACHE / "pip.conf").write_text("\n".join(["[global]", "cert = /run/secrets/ca", *lines, ""]))
    trusted = settings.get("cert") or ssl.get_default_verify_paths().cafile
    return ["--secret", f"id=pip,src={CACHE / 'pip.conf'}", "--secret", f"id=ca,src={trusted}"]


def _builder() -> str:
    """Return the first ``docker`` that can build with BuildKit; newer versions need the plugin buildx."""
    commands = [str(file) for folder in os.get_exec_path() if (file := Path(folder, "docker")).is_file()]
    for docker in commands:
        done = subprocess.run([docker, "build", "--help"], env=_buildkit(), capture_output=True, text=True)
        if done.returncode == 0 and "--secret" in done.stdout:
            return docker
    raise RuntimeError(f"no docker with BuildKit among {commands}: install buildx, or Debian's docker.io")


def _buildkit() -> dict[str, str]:
    return {**os.environ, "DOCKER_BUILDKIT": "1"}


def _revision() -> str:
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":  # make images
    with daemon():
        for kind in sys.argv[1:]:
            print(build(kind), flush=True)
        if archive := os.environ.get("ARCHIVE"):
            built = [f"tfopt-{kind}:{tfopt.__version__}" for kind in sys.argv[1:]]
            subprocess.run(["docker", "save", "--output", archive, *built], check=True)
