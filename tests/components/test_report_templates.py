"""Test that browsers run and load nothing from reports, whatever names of inputs are in them."""

import re
from pathlib import Path

import pytest

TEMPLATES = sorted((Path(__file__).parents[2] / "components").glob("*/*.j2"))
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.parent.name)
def test_a_report_forbids_scripts_and_foreign_resources(template):
    text = template.read_text()
    assert re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', text) == [POLICY]
    assert text.index("Content-Security-Policy") < min(text.index("<style"), text.index("<title"), text.index("<link"))
    assert not re.search(r"<script|\bon\w+=", text)


def test_there_are_reports_of_five_components():
    assert len(TEMPLATES) == 5
