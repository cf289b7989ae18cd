"""Test queries of NVIDIA's driver with a stand-in for nvidia-smi."""

from pathlib import Path

from tfopt.measurement.machine_fingerprint import fingerprint
from tfopt.tensorrt import machine

SCRIPT = """#!/bin/sh
case "$1" in
  --query-gpu=name,driver_version,memory.total)
    echo "NVIDIA H200, 570.86.15, 143771 MiB"
    echo "NVIDIA A10, 570.86.15, 23028 MiB" ;;
  --query-gpu=driver_version) echo 570.86.15; echo 570.86.15 ;;
  "") echo "| NVIDIA-SMI 570.86.15   Driver Version: 570.86.15   CUDA Version: 12.8     |" ;;
  *) echo "unknown field $1" >&2; exit 2 ;;
esac
"""


def test_the_fingerprint_has_each_gpu_with_driver_and_cuda(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fingerprint([0])["gpus"] == []
    program(tmp_path, SCRIPT)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert fingerprint([0])["gpus"] == [
        {"name": "NVIDIA H200", "driver": "570.86.15", "memory": "143771 MiB", "cuda": "12.8"},
        {"name": "NVIDIA A10", "driver": "570.86.15", "memory": "23028 MiB", "cuda": "12.8"},
    ]
    assert machine.driver_version() == "570.86.15"


def test_a_failing_driver_means_no_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program(tmp_path, "#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n")
    assert machine.list_gpus() == []


def program(folder: Path, text: str) -> None:
    (folder / "nvidia-smi").write_text(text)
    (folder / "nvidia-smi").chmod(0o755)
