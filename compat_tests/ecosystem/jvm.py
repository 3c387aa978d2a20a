"""Kafka's programs that work with a broker, as processes: started, killed, and started again."""

from __future__ import annotations

from pathlib import Path

from compat_tests.broker_process import Server
from compat_tests.tools import BRIEF_JVM, ECOSYSTEM_JARS, KAFKA_JARS

CLASS_PATH = f"{ECOSYSTEM_JARS}/*:{KAFKA_JARS}/*"


class Program(Server):
    """A Java class, or a source file, that prints a line with the text `ready` once it works."""

    name = "a Java program"

    def __init__(self, folder: Path, ready: str, *words: object, level: str = "warn") -> None:
        super().__init__(folder)
        self._ready = ready
        log = (f"-Dorg.slf4j.simpleLogger.defaultLogLevel={level}", "-Dorg.slf4j.simpleLogger.logFile=System.out")
        self._command = ["java", "-Xmx256m", *BRIEF_JVM, *log, "-cp", CLASS_PATH, *map(str, words)]

    def command(self) -> list[str]:
        return self._command

    def see(self, line: str) -> None:
        if self._ready in line:
            self.ready = True

    def errors(self) -> list[str]:
        return []
