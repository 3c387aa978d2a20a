"""Finds the Java that Spark needs, and makes it start quickly."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

NEEDED = 17
_REMEDY = "install it (Debian: apt install openjdk-17-jre-headless) or set JAVA_HOME"
_HEAP = (
    "-XX:+UseSerialGC",
    "-XX:MaxNewSize=64m",
    "-XX:MinHeapFreeRatio=10",  # of the space for old objects, which a full collection gives back above 20 %
    "-XX:MaxHeapFreeRatio=20",
    "-XX:-ShrinkHeapInSteps",  # at once, rather than after several of these rare collections
)
_BRIEF = ("-XX:TieredStopAtLevel=1",)
_LONG = (
    "-XX:NewRatio=3",  # the space for new objects is a third of that for old ones, up to its limit
    "-XX:CompileThresholdScaling=6",  # code is compiled when it has run six times as often as by default
)
_COLLECTOR = re.compile(r"-XX:\+Use\w*GC\b")
#: Variables with which a user may have set options for all of Java, or for Spark's.
_GIVEN = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


#: An archive of the classes that Spark loads; `python -m barnabas.streams.archive` makes it. A JVM ignores one that is
#: missing or belongs to another Java or Spark.
ARCHIVE = Path(sys.prefix) / "barnabas-spark.jsa"


class JavaError(Exception):
    """Java is missing or too old; the message is one line with the remedy."""


def check_java() -> None:
    """Raises JavaError if Spark's Java is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        where = f"JAVA_HOME={home} has none" if home else "there is none on the PATH"
        raise JavaError(f"Spark needs Java {NEEDED} or newer, and {where}: {_REMEDY}")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = _VERSION.search(told)
    if found is None or int(found[1]) < NEEDED:
        version = found[1] if found else "of an unknown version"
        raise JavaError(f"Spark needs Java {NEEDED} or newer; {java} is Java {version}: {_REMEDY}")


def options(*, brief: bool = False) -> str:
    """JVM options, for `spark.driver.extraJavaOptions`: separated by spaces, with quotation marks as in a shell.

    `brief` is for processes that end soon: code is compiled quickly rather than well. Spark searches the message of a
    failed batch with a regular expression that needs a deep stack; with Java's default, the reason is lost.
    """
    found = [
        "-Xss16m",
        "-Xms64m",  # Java's default starts with a 64th of the machine's memory, and never returns any of it
        f'"-XX:SharedArchiveFile={ARCHIVE}"',  # its folder may have a space in its name
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:ArchiveRelocationMode=0",  # otherwise its address is random, and each page is changed and so copied
        "-XX:TrimNativeHeapInterval=15000",  # milliseconds; memory that Java's compilers have freed is given back
        "-XX:+IgnoreUnrecognizedVMOptions",  # another Java may lack some of these
        "-Xshare:auto",
        "-Xlog:cds=off",
        "-Xlog:cds+dynamic=off",
        *collector(),
    ]
    return " ".join([*found, *(_BRIEF if brief else _LONG)])


def collector() -> list[str]:
    """A garbage collector that needs little CPU and memory, because nobody waits for its pauses, and its limits.

    The space for new objects is small, as they would otherwise fill a large one and leave it filled. That for old ones
    grows when they need it, and shrinks again (decision 70). Empty if the user has chosen a collector, as Java does not
    start with two.
    """
    given = [os.environ.get(name, "") for name in _GIVEN]
    spec = find_spec("pyspark")
    home = os.environ.get("SPARK_HOME") or os.path.dirname(spec.origin or "" if spec is not None else "")
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf")
    with suppress(OSError):
        given.append(Path(folder, "spark-defaults.conf").read_text(errors="replace"))
    return [] if any(map(_COLLECTOR.search, given)) else list(_HEAP)
