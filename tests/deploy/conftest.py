"""Fixtures of the distributions."""

from pathlib import Path

import pytest

from tests.deploy.distributions import REPOSITORY, distribution


@pytest.fixture(scope="session")
def built(shared_folder) -> Path:
    """The folder of a wheel and a source distribution; `build` raises if `twine check --strict` refuses a file."""
    return shared_folder("distributions", lambda folder: distribution().build(folder, REPOSITORY))
