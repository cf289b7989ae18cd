"""Test what a release needs: workflows and forms against their schemas, tools/release.py, hooks that exist."""

import importlib.util
import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
import yaml

import tfopt

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
CONFIG = ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"
SCHEMAS = {
    **dict.fromkeys(WORKFLOWS, "github-workflows"),
    **dict.fromkeys(FORMS, "github-issue-forms"),
    CONFIG: "github-issue-config",
}
PAGES = ("README.md", "docs/kubeflow.md", "deploy/kubernetes/overlays/gpu/gpu-check.yaml")
TODAY = date(2030, 2, 3)


@pytest.fixture(scope="module")
def release():
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def sources(tmp_path) -> Path:
    for name in ("tfopt/__init__.py", "docs/generate.py", *PAGES, "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"  # just after a release nothing is unreleased
    changelog.write_text(
        changelog.read_text().replace(
            "## Unreleased\n", "## Unreleased\n\n### Fixed\n- A defect.\n\n### Highlights\n- A run.\n", 1
        )
    )
    return tmp_path


def image_tags(page: Path) -> set[str]:
    return set(re.findall(r"tfopt-(?:\{kind\}|tf|beam|gpu):([\d.]+\d)", page.read_text()))


def check(file: Path, schema: str) -> int:
    from check_jsonschema import main
    from click.testing import CliRunner

    return (
        CliRunner().invoke(main, ["--builtin-schema", f"vendor.{schema}", str(file)], catch_exceptions=False).exit_code
    )


@pytest.mark.parametrize(("file", "schema"), SCHEMAS.items(), ids=lambda value: getattr(value, "stem", value))
def test_a_file_of_the_forge_has_its_published_schema(file, schema, tmp_path):
    assert check(file, schema) == 0
    damaged = tmp_path / file.name
    key = {"github-workflows": "runs-on", "github-issue-forms": "description", "github-issue-config": "blank"}[schema]
    damaged.write_text(file.read_text().replace(key, f"x{key}"))
    assert check(damaged, schema) == 1


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_has_few_rights_and_runs_targets_and_scripts_that_exist(file):
    workflow = yaml.safe_load(file.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    for command in commands:
        if target := re.match(r"make ([a-z-]+)", command):
            assert target[1] in targets
        for path in re.findall(r"(?:tools|\.ci|requirements)/[\w.]+", command):
            assert (ROOT / path).is_file()
    for job in workflow["jobs"].values():
        assert re.fullmatch(r"[\w./:-]+@sha256:[0-9a-f]{64}", job.get("container", f"none@sha256:{0:064}"))
        for step in job["steps"]:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]) if "uses" in step else step["run"]
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False


def test_a_security_audit_has_no_findings(tmp_path):
    audit = [Path(sys.executable).with_name("zizmor"), "--offline", "--no-progress", "--quiet"]
    done = subprocess.run([*audit, *WORKFLOWS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    damaged = tmp_path / "ci.yml"
    damaged.write_text(WORKFLOWS[0].read_text().replace("$GITHUB_WORKSPACE", "${{ github.head_ref }}"))
    assert subprocess.run([*audit, damaged], capture_output=True, check=False).returncode != 0


def test_only_the_publishing_job_can_get_a_token_of_the_index():
    jobs = {name: job for file in WORKFLOWS for name, job in yaml.safe_load(file.read_text())["jobs"].items()}
    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == ["pypi"]
    assert jobs["pypi"]["needs"] == ["test", "images"]


def test_a_release_moves_the_changes_and_the_version(release, sources):
    for name in PAGES:
        assert image_tags(sources / name) == {tfopt.__version__}
    before = (sources / "CHANGELOG.md").read_text()
    release.prepare(sources, "99.1.0", TODAY)
    changelog = (sources / "CHANGELOG.md").read_text()
    assert "## Unreleased\n\n## 99.1.0 (2030-02-03)\n\n### Highlights\n" in changelog
    lines = [sorted(line for line in text.splitlines() if line) for text in (changelog, before)]
    assert lines[0] == sorted([*lines[1], "## 99.1.0 (2030-02-03)"])
    sections = re.findall(r"^### (\w+)", changelog.split("## 99.1.0")[1].split("\n## ")[0], re.M)
    assert {"Highlights", "Fixed"} <= set(sections)
    assert sections == sorted(sections, key=release.KINDS.index)
    assert '__version__ = "99.1.0"' in (sources / "tfopt" / "__init__.py").read_text()
    assert "VERIFIED = datetime(2030, 2, 3, tzinfo=UTC)" in (sources / "docs" / "generate.py").read_text()
    for name in PAGES:
        assert image_tags(sources / name) == {"99.1.0"}
    notes = release.notes(sources, "v99.1.0")
    assert notes.startswith("### Highlights\n")
    assert "### Fixed\n- A defect." in notes
    assert "\n## " not in notes


def test_a_release_without_changes_and_an_earlier_version_are_refused(release, sources):
    with pytest.raises(SystemExit, match="expected: a version after"):
        release.prepare(sources, "0.0.9", TODAY)
    with pytest.raises(SystemExit, match="expected: a version after"):
        release.prepare(sources, "1.0", TODAY)
    release.prepare(sources, "99.1.0", TODAY)
    with pytest.raises(SystemExit, match="no change under Unreleased"):
        release.prepare(sources, "99.2.0", TODAY)


@pytest.mark.parametrize(
    ("changes", "received"), [("### Broken\n- x\n", "the section Broken"), ("- x\n\n### Fixed\n- y\n", "received: - x")]
)
def test_a_change_in_no_section_of_a_known_kind_is_refused(release, sources, changes, received):
    changelog = sources / "CHANGELOG.md"
    changelog.write_text(f"# Changelog\n\n## Unreleased\n\n{changes}\n## 0.1.0\n")
    with pytest.raises(SystemExit, match=received):
        release.prepare(sources, "99.1.0", TODAY)


def test_the_notes_of_another_tag_or_without_a_section_are_refused(release, sources):
    with pytest.raises(SystemExit, match="the tag v99"):
        release.notes(sources, "v99.0.0")
    changelog = sources / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(f"## {tfopt.__version__}", "## 7.7.7"))
    with pytest.raises(SystemExit, match="without a section"):
        release.notes(sources, f"v{tfopt.__version__}")


def test_the_hooks_are_the_commands_of_make_check():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    commands = re.search(r"^check:.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text(), re.M)[1]
    commands = re.sub(r" --check| \.$", "", commands.replace("$(BIN)", ".venv/bin"), flags=re.M)
    assert [hook["entry"] for hook in repository["hooks"]] == [line.strip() for line in commands.splitlines()]
    assert all(hook["language"] == "system" for hook in repository["hooks"])
