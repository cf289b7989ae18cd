"""Test tools/untyped_mappings.py: what it counts, and when it fails."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def counter():
    spec = importlib.util.spec_from_file_location("untyped_mappings", ROOT / "tools" / "untyped_mappings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("tfopt", "components/prune", "pipelines"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tfopt" / "components").symlink_to("../components")
    (tmp_path / "tfopt" / "run.py").write_text("def f(a: dict[str, Any]) -> dict[str, Any]: ...\n")
    (tmp_path / "components" / "prune" / "facts.py").write_text("x: dict[str, Any] = {}\ny: dict[str, int] = {}\n")
    return tmp_path


def test_each_file_counts_once(counter, repository: Path):
    assert counter.count_by_file(repository) == {"tfopt/run.py": 2, "components/prune/facts.py": 1}


@pytest.mark.parametrize(("limit", "code"), [(3, 0), (2, 1)])
def test_more_than_the_limit_fails(counter, repository: Path, monkeypatch, capsys, limit, code):
    monkeypatch.setattr(counter, "ROOT", repository)
    monkeypatch.setattr(counter, "LIMIT", limit)
    assert counter.main() == code
    assert ("   2 tfopt/run.py" in capsys.readouterr().out) == bool(code)


def test_this_repository_is_within_the_limit(counter):
    assert counter.main() == 0
