"""Test that browsers run and load nothing from reports, whatever names of inputs are in them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEMPLATES = sorted((ROOT / "components").glob("*/*.j2"))
PAGE = ROOT / "tfopt" / "charts" / "page.html.j2"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.parent.name)
def test_a_report_forbids_scripts_and_foreign_resources(template):
    assert template.read_text().startswith('{% extends "page.html.j2" %}')
    text = PAGE.read_text() + template.read_text()
    assert re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', text) == [POLICY]
    assert text.index("Content-Security-Policy") < min(text.index("<style"), text.index("<title"), text.index("<link"))
    assert not re.search(r"<script|\bon\w+=", text)


def test_there_are_reports_of_nine_components():
    assert len(TEMPLATES) == 9
