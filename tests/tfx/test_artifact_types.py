"""Test that a container of a managed pipeline finds an artifact type by its name."""

import pytest
import yaml
from tfx.orchestration.kubeflow.v2 import compiler_utils
from tfx.utils import import_utils

import tfopt
from tfopt.tfx.components import TYPES


@pytest.mark.parametrize("tfx_type", TYPES.values(), ids=lambda tfx_type: tfx_type.TYPE_NAME)
def test_the_type_name_in_a_compiled_pipeline_can_be_imported(tfx_type):
    title = yaml.safe_load(compiler_utils.get_artifact_schema(tfx_type))["title"]
    assert import_utils.import_class_by_path(compiler_utils.TITLE_TO_CLASS_PATH.get(title, title)) is tfx_type


def test_an_unknown_name_of_the_package_raises_attribute_error():
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = tfopt.Nonsense
