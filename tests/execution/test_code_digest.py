"""No cached result outlives the code that made it, and none is lost to another file."""

import importlib

from tfopt.component import components
from tfopt.execution import code_digest as implementation


def test_a_result_depends_on_the_code_beside_its_component_and_on_no_other_file(tmp_path, monkeypatch):
    (tmp_path / "helping").mkdir()
    for name in ("counting_here.py", "helping/__init__.py", "helping/core.py", "page.j2", "rows.csv", "notes.txt"):
        (tmp_path / name).write_text("from tests.toys import *\nfrom tfopt.component import component\n")
    with (tmp_path / "counting_here.py").open("a") as module:
        module.write("count = component(image='tf')(lambda data: None)\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = implementation.files(importlib.import_module("counting_here").count)
    own = {file.relative_to(tmp_path).as_posix() for file in found if file.is_relative_to(tmp_path)}
    assert own == {"counting_here.py", "helping/__init__.py", "helping/core.py", "page.j2"}
    assert "pictures.css" in {file.name for file in found}


def test_what_runs_other_components_depends_on_their_code(tmp_path):
    def parts(name: str) -> set[str]:
        return {file.parent.name for file in implementation.files(components()[name]) if "components" in file.parts}

    assert parts("benchmark") == {"benchmark"}
    assert set(components()) <= parts("tune_recipe") == parts("compare_backbones")
