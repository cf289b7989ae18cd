"""Test what `--wait` reports about pods of a run whose record Argo has compressed, as it does for large ones."""

import base64
import gzip
import json
import os
import subprocess

import pytest
from kfp_server_api import V2beta1PipelineTaskDetail, V2beta1Run, V2beta1RunDetails

from tfopt.errors import ComponentError
from tfopt.kfp import pending_pods


def run_of(records: int) -> V2beta1Run:
    """Return a run with a task that KFP knows from an early record of Argo, and records of KFP's own programs."""
    named = V2beta1PipelineTaskDetail(task_id="1", display_name="evaluate-driver", state="PENDING")
    others = [V2beta1PipelineTaskDetail(task_id=f"own {number}") for number in range(records)]
    return V2beta1Run(run_details=V2beta1RunDetails(task_details=[named, *others]))


def test_a_run_that_advances_has_no_pod_that_waits(monkeypatch, caplog):
    now = [0.0]
    monkeypatch.setattr(pending_pods, "monotonic", lambda: now[0])
    pods = pending_pods.PendingPods("5", "kubeflow", limit=600)
    for records in range(20):
        pods.check(run_of(records))
        now[0] += 100
    assert not caplog.records
    with pytest.raises(ComponentError, match="a pod of evaluate has not started for 700 s"):
        for _ in range(20):
            pods.check(run_of(19))
            now[0] += 100


def test_a_run_without_a_workflow_is_reported_and_ends(monkeypatch, caplog):
    """KFP's API server deletes the workflow of a run that it has not stored yet; seen on a busy cluster."""
    now = [0.0]
    monkeypatch.setattr(pending_pods, "monotonic", lambda: now[0])
    pods = pending_pods.PendingPods("5", "kubeflow", limit=600)
    lost = V2beta1Run(state="PENDING")
    for seconds in (0.0, 110.0, 130.0):
        now[0] = seconds
        pods.check(lost)
        assert bool(caplog.records) == (seconds > 120)
    assert "run 5: no step of it has started for 130 s" in caplog.text
    now[0] = 700
    with pytest.raises(ComponentError, match="start it again"):
        pods.check(lost)


def test_the_command_reads_a_compressed_record(tmp_path):
    nodes = {"a": {"displayName": "executor(0)", "phase": "Failed", "message": "OOMKilled (exit code 137)", "id": "a"}}
    packed = base64.b64encode(gzip.compress(json.dumps(nodes, separators=(",", ":")).encode())).decode()
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\ncase "$*" in *compressedNodes*) echo {packed};; esac\n')
    kubectl.chmod(0o755)
    _, _, command = pending_pods.PendingPods("5", "kubeflow", 60).states_of_pods().partition(": ")
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    printed = subprocess.run(command, shell=True, env=path, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [
        '"displayName":"executor(0)"',
        '"phase":"Failed"',
        '"message":"OOMKilled (exit code 137)"',
    ]
