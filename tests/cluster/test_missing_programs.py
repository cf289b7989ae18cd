"""Test the messages where programs of the cluster are missing; these need no cluster."""

import os
from pathlib import Path

from tests.cluster import kubeflow, node
from tests.cluster.images import PROGRAMS


def test_without_programs_the_command_is_skipped_with_the_reason(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv(node.VARIABLE, raising=False)
    assert node.test(tmp_path / "none", ["false"]) == 0
    assert "skipped: the variable CLUSTER_BIN names no folder" in capsys.readouterr().out


def test_the_folder_of_the_programs_can_be_relative(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(node.VARIABLE, "bin")
    monkeypatch.setenv("PATH", os.environ["PATH"])  # restored at the end
    monkeypatch.setattr(node, "FOLDER", tmp_path / "none")
    assert node.main("test", "false") == 0
    assert f"skipped: CLUSTER_BIN={tmp_path}/bin: no program" in capsys.readouterr().out


def test_missing_programs_of_kubeflow_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv(node.VARIABLE, str(tmp_path))
    for name in set(PROGRAMS.values()) - {"driver"}:
        (tmp_path / name).touch()
    Path(tmp_path, "manifests", "kfp").mkdir(parents=True)
    assert "no driver, manifests/argo (tests/cluster/build.sh" in kubeflow.what_is_missing()
    (tmp_path / "driver").touch()
    Path(tmp_path, "manifests", "argo").mkdir()
    assert kubeflow.what_is_missing() is None
