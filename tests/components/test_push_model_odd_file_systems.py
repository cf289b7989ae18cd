"""Test pushes to file systems that lack modes, times or symbolic links."""

import errno
import os

import pytest

from tests.components.test_push_model import push
from tests.reports import DIGITS, make_models
from tfopt.errors import ComponentError


@pytest.mark.parametrize("call", ["chmod", "utime", "symlink"])
def test_a_push_needs_no_modes_times_and_links(tmp_path, monkeypatch, caplog, call):
    model, served = make_models(DIGITS[:2], tmp_path / "models")[1], tmp_path / "served"
    original = getattr(os, call)

    def fail(*arguments: object, **named: object) -> object:
        if any(str(value).startswith(str(served)) for value in arguments):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        return original(*arguments, **named)

    trained = tmp_path / "trained"
    (trained / "Format-Keras").mkdir(parents=True)
    (trained / "Format-Keras" / "model.keras").touch()
    monkeypatch.setattr(os, call, fail)
    assert push(model, served, layout="plain", trained=trained).read()["version"] == 1
    assert (served / "1" / "saved_model" / "saved_model.pb").is_file()
    assert [(served / name).is_symlink() for name in ("latest", "trained")] == [call != "symlink"] * 2
    assert ("this file system has no links" in caplog.text) == (call == "symlink")


def test_a_configuration_that_another_user_linked_is_not_copied_into_the_record(tmp_path, monkeypatch):
    model, served, private = make_models(DIGITS[:2], tmp_path / "models")[1], tmp_path / "served", tmp_path / "private"
    private.write_text("a private line")
    served.mkdir()
    (served / "config.pbtxt").symlink_to(private)
    owner = os.geteuid()
    if owner == 0:  # whose links everybody follows
        os.lchown(served / "config.pbtxt", 65534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ComponentError, match="a link of another user"):
        push(model, served, layout="plain")
    assert not (served / "1").exists()
