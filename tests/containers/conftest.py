"""Docker for the session, each image built once, and a container as Kubernetes would start it."""

import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.containers import docker_host


@pytest.fixture(scope="session")
def image() -> Iterator[Callable[[str], str]]:
    """Build the image of a kind, unless this session did, and return its name."""
    with docker_host.daemon():
        yield cache(docker_host.build)


def contained(image: str, *words: str, mounts: tuple[Path, ...] = ()) -> list[str]:
    """The command of a container with a read-only root, a user who owns nothing, and no network."""
    locked = ["--read-only", "--tmpfs", "/tmp", "--user", "10001", "--network", "none", "--cap-drop", "ALL"]
    volumes = [word for folder in mounts for word in ("--volume", f"{folder}:{folder}")]
    return ["docker", "run", "--rm", *locked, *volumes, image, *words]


def run(image: str, *words: str, mounts: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(contained(image, *words, mounts=mounts), capture_output=True, text=True, check=False)
