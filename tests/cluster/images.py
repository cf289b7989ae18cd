"""Write container images without Docker: one layer with a few programs, in the archive format that containerd imports.

An image has no system of its own. The node mounts this machine's system, the Python environment and this repository
into every container, read-only (`tests.cluster.configuration.MOUNTS`), so the image ``tfopt-tf`` is empty.
"""

import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import tfopt

REPOSITORY = Path(__file__).parents[2]
KFP_VERSION = "2.16.1"
PAUSE = "registry.example/pause:1"
ARGO_EXECUTOR = "registry.example/argoexec:3.7.8"
KINDS = {kind: f"registry.example/tfopt-{kind}:{tfopt.__version__}" for kind in ("tf", "beam", "tfx")}
PROGRAMS = {
    PAUSE: "pause",
    ARGO_EXECUTOR: "argoexec",
    "registry.example/workflow-controller:3.7.8": "workflow-controller",
    f"registry.example/kfp-apiserver:{KFP_VERSION}": "apiserver",
    f"registry.example/kfp-driver:{KFP_VERSION}": "driver",
    f"registry.example/kfp-launcher:{KFP_VERSION}": "launcher-v2",
    f"registry.example/kfp-persistence-agent:{KFP_VERSION}": "persistence_agent",
    f"registry.example/kfp-scheduled-workflow:{KFP_VERSION}": "scheduledworkflow",
}
# moto's server waits for checksums behind the content of a request.
CHECKSUMS = tuple(
    f"AWS_{each}=when_required" for each in ("REQUEST_CHECKSUM_CALCULATION", "RESPONSE_CHECKSUM_VALIDATION")
)
_SYSTEM = ("bin", "sbin", "lib", "lib64")
_USERS = "root:x:0:0::/root:/bin/sh\ntfopt:x:10001:10001::/tmp:/bin/sh\n"


def write_images(folder: Path, programs: Path) -> list[Path]:
    """Write an archive for each image whose program is there, and for each kind of tfopt's images."""
    folder.mkdir()
    present = {image: programs / name for image, name in PROGRAMS.items() if (programs / name).is_file()}
    archives = [write_image(folder, image, program) for image, program in present.items()]
    return archives + [write_image(folder, image) for image in KINDS.values()]


def write_image(
    folder: Path,
    image: str,
    program: Path | None = None,
    trees: Mapping[str, Path] = MappingProxyType({}),
    code: str = str(REPOSITORY),
) -> Path:
    """Write the archive of an image that runs a program as user 10001; without a program, this machine's Python.

    It also has the folders ``trees`` at their paths, and imports packages from the path ``code``.
    """
    layer = _layer(program, trees)
    digest = hashlib.sha256(layer).hexdigest()
    path = f"/bin-of-image:{Path(sys.executable).parent}:/bin:/usr/bin"
    environment = [f"PATH={path}", f"PYTHONPATH={code}", "HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1", *CHECKSUMS]
    runs = {"Env": environment, "User": "10001:10001", "WorkingDir": "/tmp"}
    if program:
        runs["Entrypoint"] = [f"/bin-of-image/{program.name}"]
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
    configuration = json.dumps({"architecture": "amd64", "os": "linux", "config": runs, "rootfs": rootfs}).encode()
    name = hashlib.sha256(configuration).hexdigest() + ".json"
    manifest = json.dumps([{"Config": name, "RepoTags": [image], "Layers": [f"{digest}.tar"]}]).encode()
    file = folder / f"{image.rpartition('/')[2].replace(':', '-')}.tar"
    with tarfile.open(file, "w") as archive:
        for path, content in (("manifest.json", manifest), (name, configuration), (f"{digest}.tar", layer)):
            _add(archive, path, content)
    return file


def _layer(program: Path | None, trees: Mapping[str, Path]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in _SYSTEM:
            if Path("/", name).is_symlink():
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.SYMTYPE, str(Path("/", name).readlink())
                archive.addfile(link)
        temporary = tarfile.TarInfo("tmp")
        temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
        archive.addfile(temporary)
        _add(archive, "etc/passwd", _USERS.encode())
        if program:
            _add(archive, f"bin-of-image/{program.name}", program.read_bytes(), 0o755)
        for path, source in trees.items():
            archive.add(source, path.lstrip("/"), filter=_readable)
    return buffer.getvalue()


def _readable(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Let every user read a file, or a folder of a test, which only its owner can."""
    entry.mode |= 0o555 if entry.isdir() else 0o444
    return entry


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
