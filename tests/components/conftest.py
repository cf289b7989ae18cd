"""Fixtures that several test files of components share because they are slow to make."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.components.pushes import Push
from tests.components.workloads import LiteModels


@pytest.fixture(scope="session")
def exported_digits(digits_model, digits_examples, tmp_path_factory) -> Callable[..., tuple[Path, dict]]:
    """Return a function that exports the digits model, once for each precision and options: folder and metadata."""
    made: dict[str, tuple[Path, dict]] = {}

    def once(exporter, precision: str = "float32", **options) -> tuple[Path, dict]:
        key = json.dumps([exporter.format, precision, options], sort_keys=True)
        if key not in made:
            folder = tmp_path_factory.mktemp("exported") / "out"
            made[key] = folder, exporter.export(digits_model, digits_examples, folder, precision, **options)
        return made[key]

    return once


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> LiteModels:
    """LiteRT files with more and less of the same work, and some unusual ones."""
    return LiteModels(tmp_path_factory.mktemp("models"))


@pytest.fixture
def push(tmp_path) -> Push:
    return Push(tmp_path)
