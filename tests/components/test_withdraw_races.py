"""Test commands and pushes that change a destination in an object store at the same time."""

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.components.pushes import add
from tests.components.test_push_model import changed, model  # noqa: F401  (model is a fixture)
from tfopt.components.push_model.withdraw import open_versions, promote, restore, withdraw
from tfopt.errors import ComponentError
from tfopt.model_store.withdrawals import canary_folder, is_canary, is_withdrawn, read_changes
from tfopt.serving.triton_config import HEADER
from tfopt.storage import remote_files


def push(destination: str, new: Path, share: int | None = None) -> None:
    """Add a version, or a canary, with a configuration of Triton that names it."""
    text = (new / "Format-Serving" / "tflite").read_text()
    add(open_versions(destination), new, lambda _, __: HEADER + text, share)


COMMANDS = {
    "withdraw": lambda destination, _: withdraw(destination, 2, "wrong"),
    "restore": lambda destination, _: restore(destination, 2, "right"),
    "push": push,
    "push a canary": lambda destination, new: push(destination, new, share=10),
    "withdraw the canary": lambda destination, _: withdraw(destination, 3, "wrong"),
    "promote": lambda destination, _: promote(destination, 3),
    "half": lambda destination, _: promote(destination, 3, share=50),
}
PAIRS = [
    ("withdraw", "withdraw"), ("withdraw", "restore"), ("withdraw", "push"), ("restore", "restore"),
    ("restore", "withdraw"), ("restore", "push"), ("push", "withdraw"), ("push", "restore"),
    ("push", "push"),
]  # fmt: skip


def wait_for_store() -> None:
    """Let a process wait for a server on a busy machine."""
    remote_files.ANSWER_S = 300.0


def run_command(name: str, destination: str, new: Path) -> None:
    """Run a command; only another command, or its effect, is a reason for an error."""
    try:
        COMMANDS[name](destination, new)
    except ComponentError as error:
        reasons = (
            "at this moment",
            "2 is not withdrawn",
            "is no canary",
            "answers the other requests",
            "is served now",
        )
        assert any(reason in error.received for reason in reasons), error


@contextlib.contextmanager
def interrupted_at(monkeypatch, number: int, other: Callable[[], None]) -> Iterator[list[int]]:
    """Run another command, whole, before the request with this number; yield the number of requests in a list."""
    requests, original = [0], remote_files._connected

    def connected(uri):
        requests[0] += 1
        if requests[0] == number:
            other()
        return original(uri)

    with monkeypatch.context() as patch:
        patch.setattr(remote_files, "_connected", connected)
        yield requests


def is_served(destination: str) -> bool:
    """Return True if version 2 is to be served by its last change."""
    changes = read_changes(destination).get(2, ())
    return not changes or changes[-1].action == "restored"


def check_place(destination: str) -> None:
    """Check that the files of version 2 are where its last change says, once and whole."""
    shown = is_served(destination)
    places = destination, f"{destination}/withdrawn"
    contents = [remote_files.read_file(f"{place}/2/model.tflite") for place in places]
    assert contents == ([b"two", None] if shown else [None, b"two"])
    versions = open_versions(destination)
    assert (2 in versions.numbers()) == shown
    newest = remote_files.read_file(f"{versions.path(versions.newest())}/model.tflite")
    assert remote_files.read_file(f"{destination}/config.pbtxt") == HEADER.encode() + newest


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_command_may_come_between_any_two_requests_of_another(first, second, model, tmp_path, monkeypatch):  # noqa: F811
    destination, stored = f"memory:/{tmp_path}/served", MemoryFileSystem.store
    for text in ("one", "two"):
        push(destination, changed(model, text))
    if first == "restore" or (first, second) == ("push", "restore"):
        withdraw(destination, 2, "before")
    new = [changed(model, "new of the first"), changed(model, "new of the second")]
    number, requests, start = 1, [1], dict(stored)
    while number <= requests[0]:
        stored.clear()
        stored.update(start)
        other = Mock(side_effect=partial(run_command, second, destination, new[1]))
        with interrupted_at(monkeypatch, number, other) as requests:
            run_command(first, destination, new[0])
        check_place(destination)
        pushes = (first == "push") + (second == "push" and other.called)
        assert len(open_versions(destination).numbers()) == pushes + (2 if is_served(destination) else 1)
        number += 1
    assert number > 10


CANARY_PAIRS = [("promote", "withdraw the canary"), ("push", "push a canary"), ("push a canary", "push")]
NIGHTLY_PAIRS = [
    ("withdraw the canary", "promote"), ("promote", "promote"), ("promote", "half"), ("half", "promote"),
    ("promote", "push"), ("push", "promote"), ("push a canary", "push a canary"), ("push a canary", "withdraw"),
    ("withdraw", "push a canary"), ("withdraw the canary", "withdraw the canary"),
]  # fmt: skip
CANARY_PAIRS += [pytest.param(*pair, marks=pytest.mark.nightly) for pair in NIGHTLY_PAIRS]


def check_canaries(destination: str) -> None:
    """Check that each version is in the one place that its last change says, whole, and the configuration fits."""
    versions, changes = open_versions(destination), read_changes(destination)
    folders = {"": destination, "withdrawn": f"{destination}/withdrawn", "canary": canary_folder(destination)}
    for number in range(1, 6):
        of_version = changes.get(number, ())
        place = "withdrawn" if is_withdrawn(of_version) else "canary" if is_canary(of_version) else ""
        places = [name for name, folder in folders.items() if remote_files.list_names(f"{folder}/{number}")]
        assert places in ([place], [] if not of_version else None)
        assert not places or remote_files.read_file(f"{folders[place]}/{number}/model.tflite")
        assert not places or remote_files.read_file(f"{folders[place]}/versions/{number}.sha256")
        assert (number in versions.numbers()) == (places == [""])
    newest = remote_files.read_file(f"{versions.path(versions.newest())}/model.tflite")
    assert remote_files.read_file(f"{destination}/config.pbtxt") == HEADER.encode() + newest


@pytest.mark.parametrize(("first", "second"), CANARY_PAIRS)
def test_canaries_survive_a_command_between_any_two_requests_of_another(first, second, model, tmp_path, monkeypatch):  # noqa: F811
    destination, stored = f"memory:/{tmp_path}/served", MemoryFileSystem.store
    for text in ("one", "two"):
        push(destination, changed(model, text))
    if "push a canary" not in (first, second):
        push(destination, changed(model, "three"), share=10)
    new = [changed(model, "new of the first"), changed(model, "new of the second")]
    number, requests, start = 1, [1], dict(stored)
    while number <= requests[0]:
        stored.clear()
        stored.update(start)
        with interrupted_at(monkeypatch, number, partial(run_command, second, destination, new[1])) as requests:
            run_command(first, destination, new[0])
        check_canaries(destination)
        number += 1
    assert number > 10


@pytest.mark.nightly
def test_commands_in_several_processes_lose_nothing(model, bucket):  # noqa: F811
    destination = f"{bucket}/served"
    for text in ("one", "two"):
        push(destination, changed(model, text))
    new, commands = changed(model, "new"), ["withdraw", "restore", "withdraw", "push", "restore"]
    with ProcessPoolExecutor(len(commands), multiprocessing.get_context("spawn"), wait_for_store) as pool:
        for _ in range(3):
            list(pool.map(run_command, commands, [destination] * len(commands), [new] * len(commands)))
            check_place(destination)
    assert set(open_versions(destination).numbers()) >= {1, 3}
