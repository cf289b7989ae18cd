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
LINES = {
    line
    for folder in ("tfopt", "components")
    for file in (ROOT / folder).rglob("*.py")
    if not any(part.is_symlink() for part in (file, *file.parents))
    for line in re.sub(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", "…", file.read_text()).splitlines()  # values of f-strings
}


def test_the_page_has_messages_of_all_kinds():
    assert len(MESSAGES) >= 40


@pytest.mark.parametrize("message", [message for message in MESSAGES if message != PYTHONS])
def test_a_message_is_in_the_sources(message: str):
    parts = message.split("…")
    words, longest = re.compile(".{0,80}".join(map(re.escape, parts))), max(parts, key=len)
    assert any(words.search(line) for line in LINES if longest in line), message
