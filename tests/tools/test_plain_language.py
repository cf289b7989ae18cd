"""Test tools/plain_language.py: what it reports in docstrings, comments, messages, names and Markdown."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def checker():
    spec = importlib.util.spec_from_file_location("plain_language", ROOT / "tools" / "plain_language.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("rule.py", '"""Which rule applies."""\n', "1: docstring opens with 'Which'"),
        ("rule.py", "x = 1  # nobody reads it\n", "1: 'nobody': no user, no process"),
        ("rule.py", 'message = "it was told twice"\n', "1: 'told': reported"),
        ("rule.py", "found = 1\n", "name 'found'"),
        ("rule.py", "def f(_given): ...\n", "name '_given'"),
        ("choosing.py", "", "module choosing: name it with a noun"),
        ("page.md", "# Title\n\nIt lies beside it.\n", "3: "),
    ],
)
def test_a_problem_is_reported_with_its_line(checker, tmp_path: Path, monkeypatch, name, text, problem):
    monkeypatch.setattr(checker, "ROOT", tmp_path)
    (tmp_path / name).write_text(text)
    assert any(problem in line for line in checker.check(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rule.py", '"""Return the rule."""\n\nkey = "kept"\nmatches = training = 1\n'),
        ("page.md", "The key `kept` is part of the JSON.\n"),
    ],
)
def test_plain_text_keys_and_terms_of_the_field_are_accepted(checker, tmp_path: Path, monkeypatch, name, text):
    monkeypatch.setattr(checker, "ROOT", tmp_path)
    (tmp_path / name).write_text(text)
    assert not list(checker.check(tmp_path / name))
