"""Run the examples (``>>>``) in the docstrings of the package."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(file for folder in ("tfopt", "components", "pipelines") for file in ROOT.glob(f"{folder}/**/*.py"))


def module_name(file: Path) -> str:
    """Return the name of a module; `components/` and `pipelines/` are linked into `tfopt/`."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "tfopt" else ("tfopt", *parts))


# `pytest --doctest-modules` takes a second in each worker, because it searches the docstrings of all modules.
@pytest.mark.parametrize("name", [module_name(file) for file in FILES if ">>> " in file.read_text()])
def test_the_examples_of_a_module_are_right(name: str):
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert attempted and not failed
