"""Words of errors: the nearest valid name, the first line of a library's error, its cause if that is the machine."""

import contextlib
import difflib
import errno
import os
import re
import resource
import shutil
from collections.abc import Iterable
from pathlib import Path

from tfopt.errors import ComponentError, MachineError

_DISK_ERRORS = (  # numbers, texts, what is expected, how to fix it
    (
        (errno.ENOSPC, errno.EDQUOT),
        (os.strerror(errno.ENOSPC), "database or disk is full"),
        "room for the outputs",
        "free some disk space, or write elsewhere",
    ),
    (
        (errno.EFBIG,),
        (os.strerror(errno.EFBIG), "disk I/O error"),  # SQLite's text for a limit, too
        "a disk, and a limit of file sizes, that allow for the outputs",
        "raise the limit (ulimit -f), check the disk, or write elsewhere",
    ),
    (
        (errno.EIO, errno.ESTALE),
        (os.strerror(errno.EIO), os.strerror(errno.ESTALE)),
        "a disk without errors",
        "check the disk (dmesg lists its errors) or the server that it is on, or write elsewhere",
    ),
    (
        (),
        ("attempt to write a readonly database", "unable to open database file"),
        "a run's folder that can be written",
        "change its permissions, or name another folder",
    ),
)
_HEADINGS = ("Graph execution error", "Detected at node", "<stack traces")  # of TensorFlow's errors
_UNSUPPORTED = (errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # of file systems
_PATH_ERRORS = {*_UNSUPPORTED, errno.EACCES, errno.EPERM, errno.EROFS}  # also without the name of a file
# Modules whose package has another name, or which a package of an extra brings.
_PACKAGES = {
    **{"PIL": "pillow", "yaml": "pyyaml", "OpenSSL": "pyopenssl", "cuda": "cuda-bindings"},
    **{"mlflow": "mlflow-skinny", "mr_openapi": "model-registry"},
    **dict.fromkeys(("absl", "google", "grpc", "h5py", "keras", "ml_dtypes"), "tensorflow"),
    **dict.fromkeys(("ml_metadata", "tensorflow_metadata", "tensorflow_model_analysis", "tfx_bsl"), "tfx"),
    **dict.fromkeys(("tensorflow_data_validation", "tensorflow_transform"), "tfx"),
    **dict.fromkeys(("kfp_server_api", "kubernetes", "urllib3"), "kfp"),
    "openlineage": "openlineage-python",
    "opentelemetry": "opentelemetry-sdk",
}


def machine_error(error: BaseException) -> MachineError | None:
    """Convert an error about missing disk space, memory or a package; return None for other errors.

    >>> error = machine_error(ModuleNotFoundError("No module named 'tf2onnx'"))
    >>> error.received, error.fix, machine_error(ValueError("no such op"))
    ("No module named 'tf2onnx'", "pip install 'tfopt[onnx]'", None)
    """
    if isinstance(error, MachineError):
        return error
    if isinstance(error, ModuleNotFoundError):
        other = "install it; tfopt's extras, as in tfopt[onnx], and its images have what each component needs"
        return MachineError(first_line(error), "the package", install_command(error) or other)
    if isinstance(error, ComponentError):
        return disk_full_error(error)
    if isinstance(error, MemoryError) or _lacks_memory(error):
        fix = "run it on a machine, or in a pod, with more of it, or raise the limit (ulimit -v)"
        return MachineError(first_line(error), "more memory", fix)
    return disk_full_error(error)


def install_command(error: ModuleNotFoundError) -> str | None:
    """Return the command that installs the missing module with tfopt, by the extra that has it; None for others."""
    import importlib.metadata  # takes as long as the other imports of this module together

    match = re.search("No module named '([^']+)'", str(error))
    module = (error.name or (match[1] if match else "")).partition(".")[0]
    package = _PACKAGES.get(module, module).replace("_", "-").lower()
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for requirement in importlib.metadata.requires("tfopt") or ():
            name = re.match(r"[\w.-]+", requirement)
            extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
            if name and name[0].replace("_", "-").lower() == package and (extra is None or extra[1] != "dev"):
                return f"pip install 'tfopt[{extra[1]}]'" if extra else "pip install tfopt, with its dependencies"
    return None


def _lacks_memory(error: BaseException) -> bool:
    """Return True if an error names missing memory, or the process has reached its limit of address space."""
    texts = (os.strerror(errno.ENOMEM), "std::bad_alloc", "failed to map segment", "OOM when allocating")
    if any(text in str(error) for text in texts):
        return True
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    peak = re.search(r"VmPeak:\s+(\d+) kB", Path("/proc/self/status").read_text()) if limit >= 0 else None
    return peak is not None and int(peak[1]) * 1024 > 0.8 * limit


def disk_full_error(error: BaseException) -> MachineError | None:
    """Convert an error about a full disk or a limit of file sizes from any library; return None for other errors.

    >>> error = disk_full_error(RuntimeError("write failed: No space left on device"))
    >>> error.expected, disk_full_error(ValueError("no such op"))
    ('room for the outputs', None)
    """
    number, words = getattr(error, "errno", None), str(error)
    # TensorFlow and others have the error in the text only, SQLite in words of its own
    matches = (
        (expected, fix)
        for numbers, texts, expected, fix in _DISK_ERRORS
        if number in numbers or any(text in words for text in texts)
    )
    match = next(matches, None)
    if match is None:
        return None
    if isinstance(error, shutil.Error):  # from copying a folder: a list with the error of each file
        error = OSError(error.args[0][0][-1])
    text = error.received if isinstance(error, ComponentError) else first_line(error)
    return MachineError(text, *match)


def path_error(error: BaseException) -> ComponentError | None:
    """Convert an error of the file system about a path; return None for other errors.

    >>> print(path_error(PermissionError(errno.EACCES, "Permission denied", "/root/x")))
    received: /root/x: Permission denied
    expected: a path that this process may read or write
    how to fix: change its permissions, or name another path
    """
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # of pathlib and of libraries
        return ComponentError(first_line(error), "the variable HOME", "set HOME to a folder that can be written")
    if not isinstance(error, OSError) or (error.filename is None and error.errno not in _PATH_ERRORS):
        return None
    text = "" if error.filename is None else f"{os.fsdecode(error.filename)[:120]}: "
    fixes = {
        errno.ELOOP: ("a path that is no link", "remove the link, or name another path"),
        errno.ENAMETOOLONG: ("names of 255 bytes at most", "choose a shorter name"),
        errno.ENOENT: ("a path that exists", "check the path"),
        errno.ENOTDIR: ("a folder", "check the path"),
        errno.EISDIR: ("a file", "check the path"),
        errno.EROFS: ("a file system that can be written", "name another path"),
    }
    fixes |= dict.fromkeys(_UNSUPPORTED, ("a file system with all calls for files", "write to a local disk instead"))
    other = ("a path that this process may read or write", "change its permissions, or name another path")
    return ComponentError(f"{text}{error.strerror}", *fixes.get(error.errno or 0, other))


def first_line(error: BaseException) -> str:
    r"""Return the first line of an exception's text that is no heading of TensorFlow, or its type if there is none.

    >>> first_line(ValueError("no such op\n  at node 3")), first_line(KeyError())
    ('no such op', 'KeyError')
    >>> first_line(ValueError("Graph execution error:\n\nDetected at node a\n3 biases for 8 channels"))
    '3 biases for 8 channels'
    """
    lines = str(error).strip().splitlines()
    return next((line for line in lines if line and not line.startswith(_HEADINGS)), type(error).__name__)


def nearest(name: str, valid: Iterable[str]) -> str:
    """Suggest the valid names closest to a mistyped one, for the third part of an error.

    >>> nearest("imagee", ["image", "label"])
    'did you mean image?'
    >>> nearest("zzz", ["image", "label"])
    'known: image, label'
    """
    names = sorted(valid)
    close = difflib.get_close_matches(name, names, n=3)
    return f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(names) or 'none'}"
