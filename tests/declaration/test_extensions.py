"""Test implementations that other packages declare as entry points: found by name, imported when they are used."""

import sys

import pytest

from tests.distributions import install
from tfopt.declaration.extensions import Extensions
from tfopt.errors import ComponentError

OWN = {"ours": "tfopt.errors.ComponentError"}


@pytest.fixture
def extensions(tmp_path, monkeypatch) -> Extensions[type]:
    """Return a group of types, with those of a distribution, in which everything but one is broken."""
    entries = {
        "theirs": "other_types:Theirs",
        "ours": "other_types:Theirs",
        "no-module": "no_such_module:Theirs",
        "no-type": "other_types:TEXT",
        "no-attribute": "other_types:missing",
        "fails": "other_failure:Theirs",
    }
    modules = {"other_types": "class Theirs: ...\nTEXT = 'a'\n", "other_failure": "raise OSError('no such disk')\n"}
    install(tmp_path, monkeypatch, "tests.types", entries, **modules)
    yield Extensions("tests.types", type, OWN)
    for name in modules:
        sys.modules.pop(name, None)


def test_names_of_other_packages_follow_without_an_import(extensions):
    assert set(extensions) == {"ours", "theirs", "no-module", "no-type", "no-attribute", "fails"}
    assert len(extensions) == 6
    assert "theirs" in extensions and "others" not in extensions
    assert "other_types" not in sys.modules
    assert extensions["theirs"].__module__ == "other_types"
    with pytest.raises(KeyError):
        extensions["others"]


def test_the_librarys_own_precede(extensions):
    assert extensions["ours"] is ComponentError


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("no-module", "cannot be imported: No module named 'no_such_module'"),
        ("no-attribute", "cannot be imported: module 'other_types' has no attribute 'missing'"),
        ("no-type", "is a str"),
        ("fails", "cannot be imported: no such disk"),
    ],
)
def test_a_broken_one_is_an_error_with_its_package_when_it_is_used(extensions, name, fault):
    assert name in extensions
    with pytest.raises(ComponentError) as caught:
        extensions[name]
    assert caught.value.received.startswith(f"{name} of the package others (")
    assert caught.value.received.endswith(fault)
    assert caught.value.expected == "a builtins.type, as entry point of tests.types"
    assert "another version of others" in caught.value.fix
