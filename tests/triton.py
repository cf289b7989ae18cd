"""Install Triton Inference Server from the package that contains its program, with a Python backend for tests."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGE = "nvidia-pytriton==0.7.0"  # contains Triton 2.51; nothing else of it is used
BACKENDS = ("onnxruntime", "openvino", "tensorflow")


def install(folder: Path) -> Path:
    """Download it to a folder, and return the folder of its program."""
    arguments = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    subprocess.run([sys.executable, *arguments], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    wheel.unlink()
    server, libraries = folder / "pytriton" / "tritonserver", folder / "nvidia_pytriton.libs"
    stub = server / "python_backend_stubs" / f"{sys.version_info.major}.{sys.version_info.minor}"
    shutil.copy2(stub / "triton_python_backend_stub", server / "backends" / "python")
    root = Path(__file__).parents[1]
    # Triton's stub finds packages of the environment, but not a repository on PYTHONPATH that is not installed there.
    backend = f"import sys\n\nsys.path.insert(0, {str(root)!r})\n"
    backend += Path(__file__).with_name("triton_backend.py").read_text()
    for name in BACKENDS:
        (server / "backends" / name).mkdir()
        (server / "backends" / name / "model.py").write_text(backend)
    program = server / "bin" / "tritonserver"
    for file in (program, server / "backends" / "python" / "triton_python_backend_stub"):
        file.chmod(0o755)
    program.rename(program.with_name("real"))
    packages = os.pathsep.join([str(root), *(path for path in sys.path if path.endswith("site-packages"))])
    program.write_text(
        f'#!/bin/sh\nexport LD_LIBRARY_PATH="{libraries}" PYTHONPATH="{packages}"\n'
        f'export PATH="{Path(sys.executable).parent}:$PATH"\n'
        f'exec "{program.with_name("real")}" "$@"\n'
    )
    program.chmod(0o755)
    return program.parent
