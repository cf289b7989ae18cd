"""Test commands and pushes that change a destination in an object store at the same time."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.components.pushes import add
from tests.components.test_push_model import changed, model, push  # noqa: F401  (model is a fixture)
from tfopt.components.push_model.withdraw import open_versions, restore, withdraw
from tfopt.errors import ComponentError
from tfopt.model_store.withdrawals import read_changes
from tfopt.storage import remote_files


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


def try_command(command: Callable[[], object]) -> str:
    """Return what an error received; only another command is a reason for one."""
    try:
        command()
    except ComponentError as error:
        assert "at this moment" in error.received or "2 is not withdrawn" in error.received, error
        return error.received
    return ""


def is_served(destination: str) -> bool:
    """Return True if version 2 is to be served by its last change."""
    changes = read_changes(destination).get(2, ())
    return not changes or changes[-1].action == "restored"


def check_place(destination: str, number: int, content: bytes) -> None:
    """Check that the files of a version are where its last change says, once and whole."""
    open_versions(destination).complete_changes()
    shown = is_served(destination)
    places = destination, f"{destination}/withdrawn"
    found = [remote_files.read_file(f"{place}/{number}/model.tflite") for place in places]
    assert found == ([content, None] if shown else [None, content])
    assert (number in open_versions(destination).numbers()) == shown


COMMANDS = {
    "withdraw": lambda destination, _: withdraw(destination, 2, "wrong"),
    "restore": lambda destination, _: restore(destination, 2, "right"),
    "push": lambda destination, new: add(open_versions(destination), new),
}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("withdraw", "withdraw"), ("withdraw", "restore"), ("withdraw", "push"), ("restore", "restore"),
        ("restore", "withdraw"), ("restore", "push"), ("push", "withdraw"), ("push", "restore"),
    ],
)  # fmt: skip
def test_a_command_may_come_between_any_two_requests_of_another(first, second, model, tmp_path, monkeypatch):  # noqa: F811
    destination, stored = f"memory:/{tmp_path}/served", MemoryFileSystem.store
    for text in ("one", "two"):
        add(open_versions(destination), changed(model, text))
    if first == "restore" or (first, second) == ("push", "restore"):
        withdraw(destination, 2, "before")
    new = [changed(model, "new of the first"), changed(model, "new of the second")]
    number, requests, start = 1, [1], dict(stored)
    while number <= requests[0]:
        stored.clear()
        stored.update(start)
        errors: list[str] = []
        with interrupted_at(
            monkeypatch, number, lambda: errors.append(try_command(lambda: COMMANDS[second](destination, new[1])))
        ) as requests:
            errors.append(try_command(lambda: COMMANDS[first](destination, new[0])))
        check_place(destination, 2, b"two")
        pushes = (first == "push") + (second == "push" and len(errors) == 2)
        assert len(open_versions(destination).numbers()) == pushes + (2 if is_served(destination) else 1)
        number += 1
    assert number > 10
