"""`make tools`: put the clients that are not Python packages in place, under .tools/.

Every step runs once (a stamp holds a digest of its inputs), and steps are independent: one that fails prints one line,
and the tests that need its tool are skipped. System packages are installed only as root and only if they are missing.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from compat_tests.tools import (
    ECOSYSTEM_JARS,
    KAFKA_JARS,
    KAFKAJS,
    PROMETHEUS,
    TOOLS,
    ZOOKEEPER_JARS,
    kafka_python_source,
)

HERE = Path(__file__).resolve().parent
POM = HERE / "java" / "pom.xml"
ZOOKEEPER_POM = HERE / "offsets" / "pom.xml"
ECOSYSTEM = HERE / "ecosystem"
OLDEST_JAVA = 17


class StepFailed(Exception):
    """A tool cannot be installed; the message is one line."""


def main() -> int:
    """Run all steps; a missing tool is not an error."""
    TOOLS.mkdir(exist_ok=True)
    for name, step in STEPS.items():
        try:
            step()
        except (StepFailed, OSError, subprocess.TimeoutExpired) as error:
            print(f".tools: {name} is not available: {str(error).splitlines()[0]}", flush=True)
    return 0


def kcat() -> None:
    """The Debian package."""
    if not shutil.which("kcat"):
        apt_install("kcat")


def chromium() -> None:
    """The Debian packages of the browser, of its WebDriver, and of a font."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        apt_install("chromium", "chromium-driver", "fonts-dejavu-core")


def mariadb() -> None:
    """The Debian packages without the service: no server starts by itself."""
    if not (shutil.which("mariadbd") and shutil.which("mariadb-install-db")):
        apt_install("mariadb-server-core", "mariadb-client-core")


def prometheus() -> None:
    """The programs of Debian's package, unpacked and not installed: no server starts by itself."""
    if shutil.which("promtool") or (PROMETHEUS / "promtool").exists():
        return
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise StepFailed("please put prometheus and promtool on the path")
    say("prometheus")
    with tempfile.TemporaryDirectory(dir=TOOLS) as folder:
        download = ["apt-get", "download", "-qq", "prometheus"]
        try:
            run(download, Path(folder))
        except StepFailed:  # the package lists may be out of date
            run(["apt-get", "update", "-qq"], TOOLS)
            run(download, Path(folder))
        (package,) = Path(folder).glob("prometheus_*.deb")
        run(["dpkg-deb", "-x", str(package), folder], TOOLS)
        PROMETHEUS.mkdir(exist_ok=True)
        for name in ("prometheus", "promtool"):
            shutil.copy2(Path(folder) / "usr" / "bin" / name, PROMETHEUS / name)


def java() -> None:
    """A Java runtime, and Apache Kafka's jars through Maven."""
    if java_version() < OLDEST_JAVA:
        apt_install("openjdk-17-jre-headless")
        if java_version() < OLDEST_JAVA:
            raise StepFailed(f"java {OLDEST_JAVA} or newer is not the default java")
    digest = digest_of(POM)
    if stamp("kafka") == digest and any(KAFKA_JARS.glob("kafka-tools-*.jar")):
        return
    say("Apache Kafka's jars")
    shutil.rmtree(TOOLS / "cds", ignore_errors=True)
    copy_jars(POM, KAFKA_JARS)
    set_stamp("kafka", digest)


def zookeeper() -> None:
    """ZooKeeper's jars through Maven."""
    digest = digest_of(ZOOKEEPER_POM)
    if stamp("zookeeper") == digest and any(ZOOKEEPER_JARS.glob("zookeeper-3*.jar")):
        return
    say("ZooKeeper's jars")
    copy_jars(ZOOKEEPER_POM, ZOOKEEPER_JARS)
    set_stamp("zookeeper", digest)


def ecosystem() -> None:
    """Kafka Streams, MirrorMaker 2 and Connect's file connectors through Maven, by their checksums."""
    pom, sums = ECOSYSTEM / "pom.xml", ECOSYSTEM / "SHA256SUMS"
    digest = digest_of(pom, sums)
    if stamp("ecosystem") == digest and any(ECOSYSTEM_JARS.glob("kafka-streams-*.jar")):
        return
    say("Kafka Streams and MirrorMaker 2")
    copy_jars(pom, ECOSYSTEM_JARS)
    for line in sums.read_text().splitlines():
        expected, name = line.split()
        if hashlib.sha256((ECOSYSTEM_JARS / name).read_bytes()).hexdigest() != expected:
            shutil.rmtree(ECOSYSTEM_JARS)
            raise StepFailed(f"{name} is not the file that {sums.name} names")
    set_stamp("ecosystem", digest)


def copy_jars(pom: Path, folder: Path) -> None:
    """Copy all jars that a POM asks for, in place of the old ones."""
    if not shutil.which("mvn"):
        apt_install("maven")
    fresh = folder.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    run([*command, f"-DoutputDirectory={fresh}"], TOOLS)
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def kafkajs() -> None:
    """kafkajs and its codecs through npm, exactly as locked."""
    if not shutil.which("npm"):
        apt_install("nodejs", "npm")
    sources = [HERE / "kafkajs" / "package.json", HERE / "kafkajs" / "package-lock.json"]
    digest = digest_of(*sources)
    if stamp("kafkajs") == digest and (KAFKAJS / "node_modules" / "kafkajs").is_dir():
        return
    say("kafkajs")
    KAFKAJS.mkdir(exist_ok=True)
    for source in sources:
        shutil.copy(source, KAFKAJS)
    run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], KAFKAJS)
    set_stamp("kafkajs", digest)


def kafka_python() -> None:
    """kafka-python's source distribution, for the tests in it."""
    source = kafka_python_source()
    if (source / "test").is_dir():
        return
    version = importlib.metadata.version("kafka-python")
    say(f"kafka-python {version}, source")
    source_only = ["--no-deps", "--no-binary", "kafka-python", f"kafka-python=={version}"]
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
    run([*pip, *source_only, "-d", str(TOOLS)], TOOLS)
    with tarfile.open(TOOLS / f"{source.name}.tar.gz") as archive:
        archive.extractall(TOOLS, filter="data")
    (TOOLS / f"{source.name}.tar.gz").unlink()


STEPS: dict[str, Callable[[], None]] = {
    "kcat": kcat,
    "Chromium": chromium,
    "MariaDB": mariadb,
    "Prometheus": prometheus,
    "Apache Kafka's tools": java,
    "ZooKeeper": zookeeper,
    "Kafka Streams and MirrorMaker 2": ecosystem,
    "kafkajs": kafkajs,
    "kafka-python's test suite": kafka_python,
}


def apt_install(*packages: str) -> None:
    """Install Debian packages, if run as root. Raises StepFailed."""
    if not shutil.which("apt-get"):
        raise StepFailed(f"please install {' '.join(packages)}")
    if os.geteuid() != 0:
        raise StepFailed(f"please install it: apt-get install {' '.join(packages)}")
    say(" ".join(packages))
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    if subprocess.run(install, env=environment, capture_output=True, timeout=600).returncode != 0:
        run(["apt-get", "update", "-qq"], TOOLS, environment)
        run(install, TOOLS, environment)


def java_version() -> int:
    """The major version of the java on the path; 0 if there is none."""
    if not shutil.which("java"):
        return 0
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=120).stderr
    found = re.search(r'version "(\d+)', told)
    return int(found[1]) if found else 0


def run(command: list[str], where: Path, environment: dict[str, str] | None = None) -> None:
    """Run a command, without output if it succeeds. Raises StepFailed with the command's last line of output."""
    done = subprocess.run(
        command, cwd=where, env=environment, capture_output=True, text=True, errors="replace", timeout=900
    )
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()] or lines
        raise StepFailed(f"{Path(command[0]).name} failed: {errors[0] if errors else f'exit {done.returncode}'}")


def say(what: str) -> None:
    """Print progress, as a step may take a minute."""
    print(f".tools: getting {what} ...", flush=True)


def digest_of(*files: Path) -> str:
    """The digest of a step's inputs."""
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def stamp(name: str) -> str | None:
    """The digest of the inputs of a step's last run."""
    file = TOOLS / f".{name}.done"
    return file.read_text() if file.exists() else None


def set_stamp(name: str, digest: str) -> None:
    """Record that a step is done."""
    (TOOLS / f".{name}.done").write_text(digest)


if __name__ == "__main__":
    sys.exit(main())
