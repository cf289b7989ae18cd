"""Test that a cached result depends on exactly the code that its component can reach."""

import importlib
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tfopt.artifacts import PythonModule, imported_modules
from tfopt.component import component, components, find
from tfopt.dag.dag import PipelineInput
from tfopt.execution import code_digest
from tfopt.execution.execute import execute
from tfopt.process_engine.runner import source_digest as process_digest
from tfopt.tfx.runner import source_digest as tfx_digest

ROOT = Path(__file__).parents[2]


def reached(name: str) -> set[str]:
    """Paths, relative to the repository, of the code that a component can reach."""
    return {file.relative_to(ROOT).as_posix() for file in code_digest.files(components()[name])}


def test_a_users_component_depends_on_the_code_next_to_it_and_on_what_it_imports(tmp_path, monkeypatch):
    (tmp_path / "helping").mkdir()
    for name in ("counting_here.py", "helping/__init__.py", "helping/core.py", "page.j2", "rows.csv", "notes.txt"):
        (tmp_path / name).write_text("from tfopt.component import component\nfrom tfopt.charts import figure\n")
    with (tmp_path / "counting_here.py").open("a") as module:
        module.write("count = component(image='tf')(lambda data: None)\n")
    monkeypatch.syspath_prepend(tmp_path)
    files = code_digest.files(importlib.import_module("counting_here").count)
    own = {file.relative_to(tmp_path).as_posix() for file in files if file.is_relative_to(tmp_path)}
    assert own == {"counting_here.py", "helping/__init__.py", "helping/core.py", "page.j2"}
    assert {"figure.py", "figures.css", "execute.py"} <= {file.name for file in files}


FORMS = """
from tfopt.component import component

def count(data, kind="tfopt.formatting"):
    from tfopt.graph import session
    from tfopt.saved_models import (
        freezer,
        graph_file,
    )
    class Local:
        import tfopt.model_store.warm_start as start
    if not data:
        return lambda: __import__("tfopt.measurement.goals")
    return kind in {"tfopt.serving.layouts", "no.module"}

count = component(image="tf")(count)
"""


def test_every_form_of_an_import_counts(tmp_path, monkeypatch):
    (tmp_path / "counting_forms.py").write_text(FORMS)
    monkeypatch.syspath_prepend(tmp_path)
    files = code_digest.files(importlib.import_module("counting_forms").count)
    names = {file.relative_to(ROOT).as_posix() for file in files if file.is_relative_to(ROOT)}
    modules = (
        "formatting",
        "saved_models/freezer",
        "saved_models/graph_file",
        "graph/session",
        "model_store/warm_start",
        "measurement/goals",
        "serving/layouts",
    )
    assert {f"tfopt/{module}.py" for module in modules} <= names


def test_a_component_reaches_what_it_imports_and_loads_by_name_and_nothing_else():
    train = reached("train")
    assert {"components/train/component.py", "components/train/train_model.py", "tfopt/execution/execute.py"} <= train
    assert not {file for file in train if file.startswith(("tfopt/kfp", "tfopt/cli", "tfopt/tfx", "tfopt/dag"))}
    assert {file.split("/")[1] for file in train if file.startswith("components/")} == {"__init__.py", "train"}
    assert "tfopt/runtimes/tflite.py" in reached("evaluate")  # importlib.import_module(f"tfopt.runtimes.{format}")
    assert "components/benchmark/worker.py" in reached("benchmark")  # python -m
    assert "tfopt/graph/laws/fold_batch_norm.py" in reached("optimize_graph")  # a package that lists its modules
    assert {"components/select_model/report.html.j2", "components/select_model/report.css"} <= reached("select_model")


@pytest.mark.parametrize("name", ["tune_recipe", "compare_backbones"])
def test_a_component_that_runs_others_depends_on_their_code(name: str):
    for other in components()[name].runs:
        assert reached(other) <= reached(name)


CHANGE = """
import sys
from tfopt.component import find
from tfopt.execution.code_digest import describe
print(*[describe(find(name)).digest for name in sys.argv[1:]])
"""


REACHED = """
from counting_later import count
from tfopt.execution.code_digest import files
print(*[file.name for file in files(count)])
"""


def test_a_users_file_counts_as_it_is_and_not_as_it_was_compiled(tmp_path):
    file = tmp_path / "counting_later.py"

    def names(module: str) -> list[str]:
        file.write_text(f"from tfopt.component import component\nfrom tfopt.saved_models import {module}\n")
        file.write_text(file.read_text() + "count = component(image='tf')(lambda data: None)\n")
        os.utime(file, (1e9, 1e9))  # the same time and size: Python's cache does not see the change
        command = [sys.executable, "-c", REACHED]
        run = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, check=True)
        return run.stdout.decode().split()

    assert "removed_ops.py" in names("removed_ops")
    assert list(tmp_path.glob("__pycache__/counting_later*"))
    assert "freezer.py" in names("freezer")


def test_only_a_change_of_reachable_code_changes_the_digest(tmp_path):
    for folder in ("tfopt", "components", "pipelines"):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))

    def digests() -> list[str]:
        command = [sys.executable, "-c", CHANGE, "export_onnx", "benchmark"]
        run = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, check=True)
        return run.stdout.split()

    before = digests()
    for unrelated in ("tfopt/kfp/cron.py", "tfopt/cli/main.py", "components/train/component.py"):
        (tmp_path / unrelated).write_text((tmp_path / unrelated).read_text() + "# a comment\n")
    assert digests() == before
    (tmp_path / "tfopt/conversion/calibration.py").write_text("LIMIT = 1\n")
    after = digests()
    assert after[0] != before[0] and after[1] == before[1]


NAMES = ("export_onnx", "push_model", "train")


def _digests() -> list[str]:
    return [code_digest.describe(find(name)).digest for name in NAMES]


def _digests_of_process(**variables: str) -> list[str]:
    command, environment = [sys.executable, "-c", CHANGE, *NAMES], {"PYTHONPATH": str(ROOT), **variables}
    return subprocess.check_output(command, env=environment, text=True).split()


def test_versions_of_packages_and_variables_that_change_results_change_the_digest(monkeypatch):
    monkeypatch.setattr(code_digest, "_ENVIRONMENT", {})  # that of the start of this process
    before = _digests()
    assert _digests_of_process(HOME="/b", TF_CPP_MIN_LOG_LEVEL="3") == before
    for variable in ("TF_USE_LEGACY_KERAS", "TF_ENABLE_ONEDNN_OPTS"):
        assert not set(_digests_of_process(**{variable: "1"})) & set(before)
    with monkeypatch.context() as patch:
        patch.setattr(imported_modules, "_version", lambda name: "0" if name == "onnx" else metadata.version(name))
        export, push, train = _digests()
    assert export != before[0] and [push, train] == before[1:]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "version_info", (3, 99))
        assert not set(_digests()) & set(before)


def test_running_an_undeclared_component_is_an_error_of_the_author(tmp_path):
    def declare(**options):
        from tfopt.artifacts import Report
        from tfopt.component import Output

        def outer(report: Output[Report]) -> None:
            components()["inspect_model"](model=tmp_path / "absent", inspection=tmp_path / "out")

        return component(image="tf", **options)(outer)

    with pytest.raises(TypeError, match=r"outer runs inspect_model: declare it, @component\(runs="):
        execute(declare(), {"report": tmp_path / "report"})
    with pytest.raises(Exception, match="absent"):  # allowed, and refused for its input
        execute(declare(runs=["inspect_model"]), {"report": tmp_path / "report"})


def test_modules_that_parameters_name_are_part_of_the_digest(tmp_path, monkeypatch):
    package = tmp_path / "measuring_here"
    package.mkdir()
    for name in ("__init__", "scores", "helping"):
        (package / f"{name}.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    evaluate = components()["evaluate"]
    parameters = {"metrics": ["measuring_here.scores:dice", "module:iou"], "label": "no:label", "seed": 3}
    assert code_digest.named_modules(parameters) == sorted(package.iterdir())
    first = code_digest.describe(evaluate, parameters).digest
    assert first != code_digest.describe(evaluate).digest
    (package / "helping.py").write_text("changed = True\n")
    assert first != code_digest.describe(evaluate, parameters).digest


@pytest.mark.parametrize(
    ("name", "packages"),
    [
        ("export_tflite", {"tensorflow", "ai-edge-litert", "ai-edge-quantizer"}),
        ("export_onnx", {"tensorflow", "tf2onnx", "onnx", "onnxruntime"}),
        ("export_openvino", {"tensorflow", "openvino", "nncf"}),
        ("quantize", {"tensorflow", "tf_keras", "tensorflow-model-optimization"}),
        ("evaluate", {"apache-beam", "numpy", "ai-edge-litert", "onnxruntime", "openvino"}),
        ("prepare_examples", {"apache-beam", "pyarrow", "pillow"}),
    ],
)
def test_versions_of_the_libraries_that_do_the_work_are_part_of_the_digest(name, packages):
    versions = code_digest.describe(components()[name]).packages
    assert packages <= versions.keys()
    assert all(version == metadata.version(package) for package, version in versions.items())


FINDER = """
import importlib.machinery
import importlib.util

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "of_a_finder":
            return importlib.util.spec_from_file_location(name, FOLDER + "/of_a_finder.py")
"""
MODULE = """
import json, sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parents[1] / "library"))
import of_the_library
import of_the_path, of_the_path_package.part
from nearby import losses
import parallel.spaces
import numpy as np
import sklearn

def build():
    import importlib
    import of_a_finder
    return importlib.import_module("by_name.inner")
"""
IMPORTED = {
    "library/of_the_library.py": "import of_its_library",
    "library/of_its_library.py": "x = 1",
    "path/of_the_path.py": "x = 1",
    "path/of_the_path_package/__init__.py": "",
    "path/of_the_path_package/part.py": "from . import other",
    "path/of_the_path_package/other.py": "x = 1",
    "job/nearby/__init__.py": "",
    "job/nearby/losses.py": "x = 1",
    "path/parallel/spaces.py": "x = 1",
    "finder/of_a_finder.py": "x = 1",
    "job/by_name/__init__.py": "",
    "job/by_name/inner.py": "x = 1",
}
NOT_IMPORTED = ["job/notes.txt", "job/another.py", "path/json.py", "library/unused.py"]


@pytest.fixture
def imports(tmp_path, monkeypatch) -> Path:
    """Return a module that imports others from all places from which it can."""
    for name in [*IMPORTED, *NOT_IMPORTED]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(IMPORTED.get(name, "x = 1"))
    monkeypatch.syspath_prepend(tmp_path / "path")
    scope = {"FOLDER": str(tmp_path / "finder")}
    exec(FINDER, scope)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, scope["Finder"]])
    (tmp_path / "job" / "module.py").write_text(MODULE)
    return tmp_path / "job" / "module.py"


def test_what_a_module_imports_from_outside_of_installed_packages_is_part_of_its_digest(imports):
    def digests() -> list[str | None]:
        source = PipelineInput("module", PythonModule, optional=False, description="")
        return [process_digest(PythonModule.open(imports)), tfx_digest(source, str(imports))]

    folder, before = imports.parents[1], digests()
    assert {file.relative_to(folder).as_posix() for file in imported_modules.imported_files([imports])} == set(IMPORTED)
    for name in IMPORTED:
        text = (folder / name).read_text()
        (folder / name).write_text(text + "# changed\n")
        now = digests()
        assert all(old != new for old, new in zip(before, now, strict=True)), name
        before = now
    for name in NOT_IMPORTED:
        (folder / name).write_text("y = 2")
    assert digests() == before
    assert not {"of_the_library", "nearby", "of_a_finder", "by_name"} & set(sys.modules)  # nothing was run


def test_versions_of_what_a_module_imports_are_part_of_its_digest(imports, monkeypatch):
    before = PythonModule(imports).digest
    assert imported_modules.imported_versions([imports]).keys() >= {"numpy", "scikit-learn"}
    monkeypatch.setattr(imported_modules, "_version", lambda name: "0" if name == "numpy" else metadata.version(name))
    assert PythonModule(imports).digest != before


def test_a_damaged_module_has_a_digest(tmp_path):
    for number, content in enumerate(
        [b"def (", b"\0", b"import json\nx = '\xff'", b"import " + b"a." * 500 + b"b" * 999]
    ):
        (tmp_path / f"m{number}.py").write_bytes(content)
        assert PythonModule(tmp_path / f"m{number}.py").digest


def test_modules_that_a_users_component_imports_from_elsewhere_change_its_digest(imports, monkeypatch):
    text = imports.read_text().replace("import of_the_library", "").replace("import sklearn", "")
    text = text.replace("from nearby import losses", "").replace("import parallel.spaces", "")
    declaration = "\nfrom tfopt.component import component\ncount = component(image='tf')(lambda data: None)\n"
    file = imports.with_name("counting_elsewhere.py")
    file.write_text(
        text.replace("import of_the_path, of_the_path_package.part", "") + declaration + "def f(): import of_the_path\n"
    )
    monkeypatch.syspath_prepend(file.parent)
    count = importlib.import_module("counting_elsewhere").count
    before = code_digest.describe(count).digest
    (imports.parents[1] / "path" / "of_the_path.py").write_text("x = 2")
    assert code_digest.describe(count).digest != before


def test_packages_are_those_that_the_standard_library_finds(tmp_path, monkeypatch):
    (tmp_path / "bare-1.egg-info").mkdir()
    (tmp_path / "bare-1.egg-info" / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: Bare\n\nName: no\n")
    (tmp_path / "bare-1.egg-info" / "SOURCES.txt").write_text("bare/a.py\nbare_module.py\nREADME.md\n")
    (tmp_path / "bare").mkdir()
    for name in ("bare/a.py", "bare_module.py", "README.md"):  # some versions of the library skip missing files
        (tmp_path / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    packages = imported_modules.packages_by_name.__wrapped__()  # not those of an earlier call
    assert packages == metadata.packages_distributions()
    assert packages["bare"] == packages["bare_module"] == ["Bare"] and len(packages) > 100


@pytest.mark.parametrize(
    ("code", "imported"),
    [
        ('sys.path.append(str(Path(__file__).parent / "a" / "b"))\nimport in_b', "a/b/in_b.py"),
        ('sys.path.append(os.path.join(os.path.dirname(__file__), "a", "b"))\nimport in_b', "a/b/in_b.py"),
        ('sys.path.append(os.path.dirname(__file__) + "/a")\nimport in_a', "a/in_a.py"),
        ('sys.path.append(f"{os.path.dirname(__file__)}/a/b")\nimport in_b', "a/b/in_b.py"),
        ('runpy.run_path("script.py")', "script.py"),
        ('exec(Path(__file__).with_name("script.py").read_text())', "script.py"),
        ('importlib.util.spec_from_file_location("x", Path(__file__).parent / "a" / "in_a.py")', "a/in_a.py"),
    ],
)
def test_modules_of_folders_and_files_that_strings_name_are_found(tmp_path, code, imported):
    for name in ("a/b/in_b.py", "a/in_a.py", "script.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1")
    module = tmp_path / "module.py"
    module.write_text(f"import importlib.util, os, runpy, sys\nfrom pathlib import Path\n{code}")
    assert imported_modules.imported_files([module]) == {tmp_path / imported}
