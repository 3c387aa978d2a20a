"""The paths of other projects' clients, and the reason if one is missing.

`setup_tools` installs them. The tests ask this module and skip with the reason, so that a machine without Java or npm
runs all other tests.
"""

from __future__ import annotations

import importlib.metadata
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"
KAFKA_JARS = TOOLS / "kafka"
KAFKAJS = TOOLS / "kafkajs"
PROMETHEUS = TOOLS / "prometheus"
ZOOKEEPER_JARS = TOOLS / "zookeeper"
ECOSYSTEM_JARS = TOOLS / "ecosystem"
#: Options for a JVM that ends soon: quick compilation takes less CPU time than thorough compilation.
BRIEF_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable")


def kafka_python_source() -> Path:
    """The folder of kafka-python's unpacked source distribution, in the installed version."""
    return TOOLS / f"kafka_python-{importlib.metadata.version('kafka-python')}"


def program_of_prometheus(name: str) -> str | None:
    """The path of `prometheus` or `promtool`, from the system or from .tools."""
    return shutil.which(name) or shutil.which(name, path=PROMETHEUS)


def missing(tool: str) -> str | None:
    """Why `tool` cannot be used, or None if it can."""
    if tool == "kcat":
        return None if shutil.which("kcat") else "kcat is not installed"
    if tool == "chromium":
        there = shutil.which("chromium") is not None and shutil.which("chromedriver") is not None
        return None if there else "chromium and chromium-driver are not installed"
    if tool == "java":
        if not shutil.which("java"):
            return "java is not installed"
        return None if any(KAFKA_JARS.glob("kafka-tools-*.jar")) else "Kafka's jars are not in .tools (make tools)"
    if tool == "ecosystem":
        there = any(ECOSYSTEM_JARS.glob("kafka-streams-*.jar"))
        return missing("java") or (None if there else "Kafka Streams' jars are not in .tools (make tools)")
    if tool == "kafkajs":
        if not shutil.which("node"):
            return "node is not installed"
        return None if (KAFKAJS / "node_modules" / "kafkajs").is_dir() else "kafkajs is not in .tools (make tools)"
    if tool == "zookeeper":
        if not shutil.which("java"):
            return "java is not installed"
        there = any(ZOOKEEPER_JARS.glob("zookeeper-3*.jar"))
        return None if there else "ZooKeeper's jars are not in .tools (make tools)"
    if tool == "prometheus":
        there = all(program_of_prometheus(name) for name in ("prometheus", "promtool"))
        return None if there else "prometheus is not in .tools (make tools)"
    if tool == "kafka-python-source":
        source = kafka_python_source()
        return None if (source / "test").is_dir() else "kafka-python's source is not in .tools (make tools)"
    return None
