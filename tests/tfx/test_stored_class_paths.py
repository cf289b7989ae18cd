"""Test that class paths which earlier versions stored in TFX's metadata still resolve."""

import pytest
from tfx.utils import import_utils

from tfopt.tfx.components import BeamExecutor, Executor


@pytest.mark.parametrize(
    ("path", "executor"), [("tfopt.tfx.Executor", Executor), ("tfopt.tfx.BeamExecutor", BeamExecutor)]
)
def test_executor_paths_of_earlier_versions_resolve(path, executor):
    assert import_utils.import_class_by_path(path) is executor
