"""Fixtures for Docker: images that are built once per session, and containers with the limits of Kubernetes."""

import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.containers import docker_host


@pytest.fixture(scope="session")
def image() -> Iterator[Callable[[str], str]]:
    """Return the function that builds the image of a kind, once per session, and returns its name."""
    with docker_host.daemon():
        yield cache(docker_host.build)


def docker_command(image: str, *words: str, mounts: tuple[Path, ...] = ()) -> list[str]:
    """Return the command of a container with a read-only root, a user without rights, and no network."""
    limits = ["--read-only", "--tmpfs", "/tmp", "--user", "10001", "--network", "none", "--cap-drop", "ALL"]
    volumes = [word for folder in mounts for word in ("--volume", f"{folder}:{folder}")]
    return ["docker", "run", "--rm", *limits, *volumes, image, *words]


def run(image: str, *words: str, mounts: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(docker_command(image, *words, mounts=mounts), capture_output=True, text=True, check=False)
