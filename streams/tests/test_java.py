"""The options with which Spark's Java starts."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from barnabas.streams.java import options
from compat_tests.tools import missing

OURS = "-XX:+UseSerialGC"


def test_a_collector_that_the_user_has_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    assert OURS in options()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xmx1g -XX:+UseStringDeduplication")
    assert OURS in options(brief=True)
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        with monkeypatch.context() as own:
            own.setenv(name, "-Xmx1g -XX:+UseG1GC")
            assert OURS not in options()


def test_a_collector_of_spark_s_own_settings_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    conf = tmp_path / "conf"
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert OURS in options(), "there is no such file"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("spark.driver.defaultJavaOptions  -Xmx1g -XX:+UseG1GC\n")
    assert OURS not in options()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert OURS in options(), "that of SPARK_CONF_DIR counts, and there is none"


def test_java_starts_whatever_collector_the_user_has_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := missing("java"):
        pytest.skip(reason)
    for chosen in ("", "-XX:+UseG1GC", "-XX:+UseParallelGC", OURS):
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", chosen)
        subprocess.run(["java", *shlex.split(options()), "-version"], check=True, capture_output=True)
