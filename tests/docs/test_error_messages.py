"""Test that each message of docs/troubleshooting.md is one that the code prints."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
MESSAGES = [
    message
    for cell in re.findall(r"^\| (`.*?) \| ", PAGE, re.M)
    for message in re.findall(r"`([^`]+)`", cell)
    if not message.isidentifier()
]
PYTHONS = "No module named …"  # of Python's import
SOURCES = "\n".join(
    re.sub(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", "…", file.read_text())  # values of f-strings
    for folder in ("tfopt", "components")
    for file in (ROOT / folder).rglob("*.py")
    if not any(part.is_symlink() for part in (file, *file.parents))
)


def test_the_page_has_messages_of_all_kinds():
    assert len(MESSAGES) >= 40


@pytest.mark.parametrize("message", [message for message in MESSAGES if message != PYTHONS])
def test_a_message_is_in_the_sources(message: str):
    words = "[^\\n]{0,80}".join(re.escape(part) for part in re.split("…", message))
    assert re.search(words, SOURCES), message
