"""Get Flink, Spark and Beam's job servers for them from PyPI and Maven Central, once, into ``build/engines``.

PyPI's packages for Flink and Spark contain the whole distributions. The job servers are the libraries of Beam 2.62.0
and their dependencies: no newer version was complete for both engines where these tests were written. A run gets the
single jars of Beam's version in Python (docs/adr/0050-portable-runners.md).
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ENGINES = Path(__file__).parents[2] / "build" / "engines"
POM = Path(__file__).with_name("pom.xml")
FLINK, SPARK = "apache-flink-libraries==1.19.3", "pyspark==3.5.9"
DRIVERS = {
    "flink": "org.apache.beam.runners.flink.FlinkJobServerDriver",
    "spark": "org.apache.beam.runners.spark.SparkJobServerDriver",
}


def what_is_missing() -> str:
    """Return why the engines cannot be run on this machine; empty if they can."""
    missing = [program for program in ("java", "mvn") if not shutil.which(program)]
    return f"no {' and no '.join(missing)}: apt-get install openjdk-17-jre-headless maven" if missing else ""


def distribution(requirement: str) -> Path:
    """Return the folder of Flink or Spark, downloaded from PyPI if it is not there."""
    folder = ENGINES / requirement
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=_made(ENGINES)) as name:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
            subprocess.run([*pip, "--no-build-isolation", "--dest", name, requirement], check=True)
            (archive,) = Path(name).glob("*.tar.gz")
            with tarfile.open(archive) as tar:
                tar.extractall(name, filter="data")
            (unpacked,) = Path(name).glob("*/deps")
            unpacked.rename(folder)
    return folder


def job_server(engine: str) -> Path:
    """Return the jar that starts Beam's job server for ``flink`` or ``spark``; its dependencies are next to it."""
    folder = ENGINES / f"beam-{engine}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=_made(ENGINES)) as name:
            copy = ["dependency:copy-dependencies", f"-DoutputDirectory={name}/jars"]
            subprocess.run(["mvn", "--quiet", "--batch-mode", "--file", str(POM), f"-P{engine}", *copy], check=True)
            Path(name).rename(folder)
            Path(name).mkdir()
    jar = folder / f"beam-{engine}-job-server.jar"
    jars = sorted((folder / "jars").glob("*.jar"))
    if engine == "spark":  # the driver's classes have to be those of the cluster
        jars += sorted((distribution(SPARK) / "jars").glob("*.jar"))
    _write_jar(jar, DRIVERS[engine], jars)
    return jar


def _write_jar(jar: Path, main_class: str, jars: list[Path]) -> None:
    """Write a jar that consists of a main class and a class path, in lines of 72 bytes at most."""
    attributes = [
        "Manifest-Version: 1.0",
        f"Main-Class: {main_class}",
        f"Class-Path: {' '.join(file.as_uri() for file in jars)}",
    ]
    lines: list[str] = []
    for attribute in attributes:
        lines.append(attribute[:72])
        lines += [f" {attribute[start : start + 71]}" for start in range(72, len(attribute), 71)]
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "\r\n".join(lines) + "\r\n")


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
