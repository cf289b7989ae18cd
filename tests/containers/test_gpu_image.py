"""Test the image `gpu` without a GPU: CUDA's libraries and assembler are found, and steps run on the CPU.

By default the image has no TensorRT (`docker_host.TENSORRT`), whose libraries come from NVIDIA's package index.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.containers import docker_host
from tests.containers.conftest import run
from tfopt.artifacts import Model

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1800)]
MODULE = """
import keras


def build_model():
    image = keras.Input((8, 8, 1), name="image")
    digit = keras.layers.Dense(10, activation="softmax", name="digit")(keras.layers.Flatten()(image))
    model = keras.Model(image, digit)
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    return model
"""
# A kernel that does nothing, for a GPU of compute capability 9.0 (H100), in NVIDIA's assembly language.
KERNEL = ".version 8.5\n.target sm_90\n.address_size 64\n.visible .entry kernel() { ret; }\n"

# The functions that TensorRT's bindings link, by library.
FUNCTIONS = {
    "tensorrt_libs/libnvinfer.so.10": (
        *("createInferBuilder_INTERNAL", "createInferRefitter_INTERNAL", "createInferRuntime_INTERNAL"),
        *("getBuilderPluginRegistry", "getPluginRegistry"),
    ),
    "tensorrt_libs/libnvinfer_plugin.so.10": ("initLibNvInferPlugins",),
    "tensorrt_libs/libnvonnxparser.so.10": (
        *("createNvOnnxParser_INTERNAL", "createNvOnnxParserRefitter_INTERNAL", "getNvOnnxParserVersion"),
    ),
    "tensorrt_lean_libs/libnvinfer_lean.so.10": ("createInferRuntime_INTERNAL",),
}
SETUP = """
from setuptools import setup
setup(name="{name}", version="{version}", packages=["{package}"], package_data={{"{package}": ["*.so*"]}})
"""


@pytest.fixture
def folder(tmp_path, digits_examples) -> Path:
    """Create a folder that all users can write to, with the 8x8 digits and a module."""
    tmp_path.chmod(0o777)
    subprocess.run(["cp", "-r", digits_examples, tmp_path / "examples"], check=True)
    (tmp_path / "module.py").write_text(MODULE)
    return tmp_path


def test_tensorflow_is_built_with_cuda_and_sees_no_gpu(image):
    code = (
        "import json, tensorflow as tf; "
        "print(json.dumps([tf.test.is_built_with_cuda(), len(tf.config.list_physical_devices('GPU')), "
        "tf.sysconfig.get_build_info()['cuda_version'].partition('.')[0]]))"
    )
    printed = run(image("gpu"), "python", "-c", code)
    assert printed.stdout, printed.stderr
    assert json.loads(printed.stdout) == [True, 0, "12"]


def test_cudas_libraries_are_on_the_search_path_of_tensorflow_and_load(image):
    """TensorFlow's library contains the folders of its search path; only the driver, libcuda, comes from the node."""
    code = """
import ctypes, json, pathlib, re, sysconfig
packages = pathlib.Path(sysconfig.get_path("purelib"))
content = b"".join((packages / f"tensorflow/libtensorflow_{name}.so.2").read_bytes() for name in ("framework", "cc"))
errors = {}
for folder in {text.decode() for text in re.findall(rb"nvidia/[a-z_0-9]+/lib", content)}:
    errors[folder.split("/")[1]] = {}
    for file in (packages / folder).glob("lib*.so.*"):
        try:
            ctypes.CDLL(str(file))
            error = None
        except OSError as caught:
            error = str(caught)
        errors[folder.split("/")[1]][file.name] = error
print(json.dumps(errors))
"""
    printed = run(image("gpu"), "python", "-c", code)
    assert printed.stdout, printed.stderr
    libraries = json.loads(printed.stdout)
    assert not libraries.pop("nvshmem")  # for several machines, and no dependency of tensorflow[and-cuda]
    needed = {"cuda_runtime", "cublas", "cudnn", "cufft", "cusolver", "cusparse", "cuda_cupti", "nccl"}
    assert needed == {name for name, files in libraries.items() if files}
    errors = [error for files in libraries.values() for error in files.values() if error]
    assert all(error.startswith("libcuda.so.1: ") for error in errors), errors
    loaded = {name for files in libraries.values() for name, error in files.items() if not error}
    assert {"libcudart.so.12", "libcublas.so.12", "libcudnn.so.9", "libcusolver.so.11"} <= loaded


def test_without_a_driver_cudas_bindings_report_it(image):
    refused = run(image("gpu"), "python", "-c", "from tfopt.tensorrt import device; device.gpu_properties()")
    assert "cudaGetDeviceCount: CUDA driver version is insufficient" in refused.stderr


def test_the_folder_where_xla_looks_has_the_assembler_and_the_device_library(image):
    """TensorFlow's library contains the path from its own folder."""
    command = (
        "cd $(python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')/tensorflow "
        "&& grep --text --quiet '\\.\\./nvidia/cuda_nvcc' libtensorflow_cc.so.2 && cd ../nvidia/cuda_nvcc "
        f"&& ls nvvm/libdevice/libdevice.10.bc && echo '{KERNEL}' > /tmp/kernel.ptx "
        "&& bin/ptxas --gpu-name sm_90 /tmp/kernel.ptx --output-file /tmp/kernel.cubin && head -c 4 /tmp/kernel.cubin"
    )
    compiled = run(image("gpu"), "sh", "-c", command)
    assert compiled.stdout.endswith("\x7fELF"), compiled.stderr


def test_train_and_evaluate_run_on_the_cpu(image, folder):
    model, evaluation = folder / "trained", folder / "evaluation"
    inputs = ["--examples", f"{folder}/examples"]
    training = ["train", *inputs, "--module", f"{folder}/module.py", "--trained", str(model), "--epochs", "8"]
    measuring = ["evaluate", *inputs, "--baseline", str(model), "--candidates", str(model)]
    for words in (training, [*measuring, "--evaluation", str(evaluation)]):
        done = run(image("gpu"), "python", "-m", "tfopt.run", *words, mounts=(folder,))
        assert done.returncode == 0, done.stderr
    Model(model).check()
    report = json.loads((evaluation / "evaluation.json").read_text())
    assert report["counts"]["evaluated"] == 397
    assert report["models"][0]["metrics"]["accuracy"]["value"] > 0.9


def test_convert_tensorrt_without_a_gpu_explains_what_it_needs(image, folder, digits_model):
    converted = _convert(image, folder, digits_model)
    assert converted.returncode == 1
    assert "received: no nvidia-smi on this machine" in converted.stderr
    assert "expected: an NVIDIA GPU and its driver" in converted.stderr
    assert "how to fix: " in converted.stderr


@pytest.mark.skipif(bool(docker_host.TENSORRT), reason="the image is built with TensorRT")
def test_convert_tensorrt_in_an_image_without_tensorrt_explains_how_to_get_it(image, folder, digits_model):
    converted = _convert(image, folder, digits_model, driver=True)
    assert converted.returncode == 1
    assert "received: import tensorrt: No module named 'tensorrt'" in converted.stderr
    assert "how to fix: use an image of kind gpu that has TensorRT (deploy/images/gpu" in converted.stderr


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler for the stand-ins")
def test_the_layer_of_tensorrt_is_built_with_stand_ins_for_nvidias_libraries(image, tmp_path, folder, digits_model):
    """The bindings are the real ones; what NVIDIA's index has is replaced by libraries with the functions they link."""
    image("gpu")  # its layers are reused
    context = tmp_path / "context"
    for name in re.findall(r"^!(\S+)", (docker_host.ROOT / ".dockerignore").read_text(), re.M):
        source = docker_host.ROOT / name
        if source.is_dir():
            shutil.copytree(source, context / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, context / name)
    shutil.copytree(docker_host.ROOT / "deploy", context / "deploy")
    _write_stand_ins(tmp_path / "stand_ins", context / "requirements")
    tag = docker_host.build("gpu", folder=context, tensorrt="requirements/stand_ins.txt", suffix="-stand-ins")
    code = "import ctypes, tensorrt; ctypes.CDLL('libnvinfer_lean.so.10'); print(tensorrt.__version__)"
    loaded = run(tag, "python", "-c", code)
    assert loaded.stdout == "10.11.0.33\n", loaded.stderr
    assert "wheel-stub" not in run(tag, "pip", "list").stdout.replace("_", "-")
    converted = _convert(lambda kind: tag, folder, digits_model, driver=True)
    assert "received: cudaGetDeviceCount: CUDA driver version is insufficient" in converted.stderr
    subprocess.run(["docker", "rmi", tag], check=True, capture_output=True)


def _write_stand_ins(folder: Path, requirements: Path) -> None:
    """Write wheels of libraries, and a list that has them instead of NVIDIA's source packages."""
    pattern = re.compile(r"^(tensorrt-\S*libs)==(\S+)(?:.*\\\n)*.*\n", re.M)
    text = (requirements / "tensorrt.txt").read_text()
    for name, version in pattern.findall(text):
        package = name.replace("-cu12", "").replace("-", "_")
        (folder / name / package).mkdir(parents=True)
        (folder / name / package / "__init__.py").touch()
        (folder / name / "setup.py").write_text(SETUP.format(name=name, version=version, package=package))
        for library in (library for library in FUNCTIONS if library.startswith(f"{package}/")):
            source = "\n".join(f"void *{function}(void) {{ return 0; }}" for function in FUNCTIONS[library])
            words = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / name / library)]
            subprocess.run(words, input=source, text=True, check=True)
        words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(requirements)]
        subprocess.run([sys.executable, "-m", "pip", *words, str(folder / name)], check=True)
    wheels = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in requirements.glob("*.whl")}
    assert len(wheels) == 2
    lines = "".join(f"/requirements/{name} --hash=sha256:{digest}\n" for name, digest in wheels.items())
    (requirements / "stand_ins.txt").write_text(pattern.sub("", text) + lines)


def _convert(image, folder: Path, model: Path, *, driver: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the component, with an ``nvidia-smi`` that reports a driver, or without."""
    path = f"PATH={folder}/driver:/opt/tfopt/bin:/usr/bin:/bin"
    if driver:
        (folder / "driver").mkdir()
        (folder / "driver" / "nvidia-smi").write_text("#!/bin/sh\necho 570.86.15\n")
        (folder / "driver" / "nvidia-smi").chmod(0o755)
    subprocess.run(["cp", "-r", model, folder / "model"], check=True)
    words = ["--model", f"{folder}/model", "--converted", f"{folder}/converted"]
    converted = run(
        image("gpu"), "env", path, "python", "-m", "tfopt.run", "convert_tensorrt", *words, mounts=(folder,)
    )
    assert not (folder / "converted").exists()
    return converted
