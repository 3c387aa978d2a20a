"""Apache Kafka's command-line tools, run without their shell scripts.

A start costs a second of CPU, most of it for loading classes. So tools that run to their end share one JVM in each
process of pytest. The first run of a tool with a JVM of its own leaves an archive of its classes in .tools/cds.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from compat_tests.java.one_jvm import OneJvm
from compat_tests.tools import BRIEF_JVM, KAFKA_JARS, TOOLS
from compat_tests.waiting import DEADLINE

HERE = Path(__file__).parent
CDS = TOOLS / "cds"
CLASSES = TOOLS / "classes"

CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
TOPICS = "org.apache.kafka.tools.TopicCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
CONFIGS = "kafka.admin.ConfigCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
ELECTIONS = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGNMENTS = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
#: A tool that prints its results only when its JVM ends.
ALONE = {VERIFIABLE_PRODUCER}


def _archive(main: str) -> Path:
    return CDS / f"{main.rpartition('.')[2]}.jsa"


def command(main: str, *arguments: str, archive: str | None = None, options: Sequence[str] = ()) -> list[str]:
    """The command line of a tool; `options` are for the JVM."""
    if archive is None:
        archive = f"-XX:SharedArchiveFile={_archive(main)}"
    small, quiet = ["-Xmx160m", *BRIEF_JVM], "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", archive, "-Xshare:auto", *small, quiet, *options, "-cp", f"{KAFKA_JARS}/*", main, *arguments]


def run(
    main: str, *arguments: str, lines: bytes | None = None, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end: in the shared JVM, or, with options, in one of its own."""
    if main not in ALONE and not options and shutil.which("javac"):
        return _one_jvm().run((main, *arguments), lines or b"")
    fresh, option = CDS / f"{uuid.uuid4()}.new", None
    if not _archive(main).exists():
        CDS.mkdir(exist_ok=True)
        option = f"-XX:ArchiveClassesAtExit={fresh}"
    done = subprocess.run(
        command(main, *arguments, archive=option, options=options),
        input=b"" if lines is None else lines,
        capture_output=True,
        timeout=DEADLINE,
    )
    if fresh.exists():
        os.replace(fresh, _archive(main))
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@functools.cache
def _one_jvm() -> OneJvm:
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    classes = f"{KAFKA_JARS}/*:{_compiled(HERE / 'Tools.java')}"
    return OneJvm(["java", "-Xmx256m", *BRIEF_JVM, quiet, "-cp", classes, "Tools"], DEADLINE)


def program(source: Path, *arguments: str) -> list[str]:
    """The command line of one of our Java programs; a source file is compiled once, not at each start."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    java, jars = ["java", "-Xmx160m", *BRIEF_JVM, quiet, "-cp"], f"{KAFKA_JARS}/*"
    if not shutil.which("javac"):
        return [*java, jars, str(source), *arguments]
    return [*java, f"{jars}:{_compiled(source)}", source.stem, *arguments]


def _compiled(source: Path) -> Path:
    """The folder of a program's classes, compiled once for each source text."""
    folder = CLASSES / f"{source.stem}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    if not folder.exists():
        CLASSES.mkdir(exist_ok=True)
        fresh = tempfile.mkdtemp(dir=CLASSES)
        brief = [f"-J{option}" for option in BRIEF_JVM]
        compiler = ["javac", *brief, "-nowarn", "-cp", f"{KAFKA_JARS}/*", "-d", fresh, str(source)]
        subprocess.run(compiler, check=True, capture_output=True, timeout=DEADLINE)
        try:
            os.rename(fresh, folder)
        except OSError:  # another process of pytest has compiled it
            shutil.rmtree(fresh)
    return folder
