"""A container of a managed pipeline finds the type of an artifact by its name alone."""

import pytest
import yaml
from tfx.orchestration.kubeflow.v2 import compiler_utils
from tfx.utils import import_utils

import tfopt
from tfopt.tfx.components import TYPES


@pytest.mark.parametrize("kind", TYPES.values(), ids=lambda kind: kind.TYPE_NAME)
def test_the_name_in_a_compiled_pipeline_leads_to_the_type(kind):
    title = yaml.safe_load(compiler_utils.get_artifact_schema(kind))["title"]
    assert import_utils.import_class_by_path(compiler_utils.TITLE_TO_CLASS_PATH.get(title, title)) is kind


def test_the_package_has_no_other_names():
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = tfopt.Nonsense
