"""Test pushes to file systems that lack modes, times or symbolic links."""

import errno
import os

import pytest

from tests.components.test_push_model import push
from tests.reports import DIGITS, make_models


@pytest.mark.parametrize("call", ["chmod", "utime", "symlink"])
def test_a_push_needs_no_modes_times_and_links(tmp_path, monkeypatch, caplog, call):
    model, served = make_models(DIGITS[:2], tmp_path / "models")[1], tmp_path / "served"
    original = getattr(os, call)

    def fail(*arguments: object, **named: object) -> object:
        if any(str(value).startswith(str(served)) for value in arguments):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        return original(*arguments, **named)

    monkeypatch.setattr(os, call, fail)
    assert push(model, served, layout="plain").read()["version"] == 1
    assert (served / "1" / "saved_model" / "saved_model.pb").is_file()
    assert (served / "latest").is_symlink() == (call != "symlink")
    assert ("this file system has no links" in caplog.text) == (call == "symlink")
