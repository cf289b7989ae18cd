"""What is other about a machine is told in words; what is the same, or not known of one of the two, is not."""

import copy
import os
import re
from importlib import metadata

import pytest
import tensorflow as tf

from tfopt.measurement.machine_fingerprint import differences, fingerprint


def test_this_machine_is_as_it_was_a_moment_ago():
    assert differences(fingerprint(), fingerprint()) == []


def test_the_cores_are_those_that_this_process_may_use_or_those_that_are_named():
    assert fingerprint()["affinity"] == sorted(os.sched_getaffinity(0))
    assert fingerprint([0])["affinity"] == [0]


@pytest.mark.parametrize(
    ("place", "value", "said"),
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
def test_each_thing_that_speed_hangs_on_is_told(place, value, said, monkeypatch):
    monkeypatch.setattr("tfopt.tensorrt.nvidia.gpus", list)
    now = fingerprint()
    then = copy.deepcopy(now)
    inner = then
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    assert re.fullmatch(said, "\n".join(differences(then, now)))


@pytest.mark.parametrize(
    ("place", "value"),
    [("platform", "Linux-9"), ("container", "podman"), ("governor", "slow"), ("affinity", [7]), ("gpus", None)],
)
def test_what_speed_does_not_hang_on_or_one_of_them_does_not_know_is_not(place, value):
    assert differences(fingerprint() | {place: value}, fingerprint()) == []
    assert differences(fingerprint(), {}) == []


def test_another_cpu_is_told_once_not_by_each_of_its_instructions():
    then = fingerprint() | {"cpu": {"model": "Some CPU", "usable_cores": None, "instruction_sets": ["avx9"]}}
    assert len(differences(then, fingerprint())) == 1


def test_a_build_is_known_by_its_largest_library():
    listed = next(file for file in metadata.files("tensorflow") if "libtensorflow_cc" in file.name)
    assert fingerprint()["tensorflow_build"] == listed.hash.value
