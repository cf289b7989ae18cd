"""The backend for all tests of this folder, and what they read from it."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import boto3
import pytest

from tests.kfp_backend.backend import ADDRESS, KEYS, Backend, what_is_missing
from tests.kfp_backend.runs import metadata_client, read_tasks

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def backend(tmp_path_factory) -> Iterator[Backend]:
    if reason := what_is_missing():
        pytest.skip(reason)
    os.environ["PYTHONPATH"] = str(REPOSITORY)  # steps find the components of tests
    with Backend(tmp_path_factory.mktemp("backend")) as running:
        yield running


@pytest.fixture(scope="session")
def store(backend):
    """Return a client of the bucket that the runs use."""
    names = {"aws_access_key_id": KEYS["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": KEYS["AWS_SECRET_ACCESS_KEY"]}
    return boto3.client("s3", endpoint_url=backend.storage, region_name="us-east-1", **names)


@pytest.fixture(scope="session")
def recorded(backend):
    """Return a function that reads what KFP recorded of a run: the state, the values and the outputs of each task."""
    return partial(read_tasks, metadata_client(ADDRESS))
