"""Test the fingerprint of the machine and the description of differences."""

import copy
import os
import re
from importlib import metadata

import pytest
import tensorflow as tf

from tfopt.measurement.machine_fingerprint import describe_differences, fingerprint


def test_two_fingerprints_of_one_machine_are_equal():
    assert describe_differences(fingerprint(), fingerprint()) == []


def test_affinity_defaults_to_the_usable_cores():
    assert fingerprint()["affinity"] == sorted(os.sched_getaffinity(0))
    assert fingerprint([0])["affinity"] == [0]


@pytest.mark.parametrize(
    ("place", "value", "pattern"),
    [
        (["cpu", "model"], "Some CPU", r"CPU Some CPU became .+"),
        (["cpu", "usable_cores"], 999, r"cores 999 became [\d.]+"),
        (["cgroup", "cpu_cores"], 0.25, r"cores 0.25 became [\d.]+"),
        (["cgroup", "memory_bytes"], 1 << 20, r"memory 0.001 GB became [\d.e+]+ GB"),
        (["gpus"], [{"name": "NVIDIA L4"}, {"name": "NVIDIA A10"}], r"GPUs NVIDIA A10, NVIDIA L4 became none"),
        (["versions", "tensorflow"], "1.0", rf"tensorflow 1.0 became {re.escape(tf.__version__)}"),
        (["versions", "keras"], "3.0", r"keras 3.0 became 3\.\d+.*"),
        (["cpu", "instruction_sets"], ["avx9"], r"without the instructions avx9\n.*with the instructions .+"),
        (["tensorflow_build"], "another", r"another build of the same TensorFlow"),
    ],
)
def test_differences_that_affect_speed_are_described(place, value, pattern, monkeypatch):
    monkeypatch.setattr("tfopt.measurement.machine_fingerprint.list_gpus", list)
    now = fingerprint()
    then = copy.deepcopy(now)
    inner = then
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    assert re.fullmatch(pattern, "\n".join(describe_differences(then, now)))


@pytest.mark.parametrize(
    ("place", "value"),
    [("platform", "Linux-9"), ("container", "podman"), ("governor", "slow"), ("affinity", [7]), ("gpus", None)],
)
def test_other_differences_and_missing_values_are_ignored(place, value):
    assert describe_differences(fingerprint() | {place: value}, fingerprint()) == []
    assert describe_differences(fingerprint(), {}) == []


def test_another_cpu_is_described_without_its_instruction_sets():
    then = fingerprint() | {"cpu": {"model": "Some CPU", "usable_cores": None, "instruction_sets": ["avx9"]}}
    assert len(describe_differences(then, fingerprint())) == 1


def test_the_build_is_the_digest_of_tensorflows_library():
    listed = next(file for file in metadata.files("tensorflow") if "libtensorflow_cc" in file.name)
    assert fingerprint()["tensorflow_build"] == listed.hash.value
