"""Apache Kafka's command-line tools, run without their shell scripts.

A start costs a second of CPU, most of it for loading classes. So the first run of each tool leaves an archive of them
in .tools/cds, which the later ones map.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

from compat_tests.tools import BRIEF_JVM, KAFKA_JARS, TOOLS
from compat_tests.waiting import DEADLINE

CDS = TOOLS / "cds"

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


def _archive(main: str) -> Path:
    return CDS / f"{main.rpartition('.')[2]}.jsa"


def command(main: str, *arguments: str, archive: str | None = None) -> list[str]:
    """The command line of a tool."""
    if archive is None:
        archive = f"-XX:SharedArchiveFile={_archive(main)}"
    small, quiet = ["-Xmx160m", *BRIEF_JVM], "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", archive, "-Xshare:auto", *small, quiet, "-cp", f"{KAFKA_JARS}/*", main, *arguments]


def run(main: str, *arguments: str, lines: bytes | None = None) -> subprocess.CompletedProcess[str]:
    """Run a tool to its end."""
    fresh, option = CDS / f"{uuid.uuid4()}.new", None
    if not _archive(main).exists():
        CDS.mkdir(exist_ok=True)
        option = f"-XX:ArchiveClassesAtExit={fresh}"
    done = subprocess.run(
        command(main, *arguments, archive=option),
        input=b"" if lines is None else lines,
        capture_output=True,
        timeout=DEADLINE,
    )
    if fresh.exists():
        os.replace(fresh, _archive(main))
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
