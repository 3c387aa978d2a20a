"""Chooses the Python that runs a session's workers on this machine: this one, or one of the same version that can run
the data source.

Without PYSPARK_PYTHON Spark takes the first `python3` of the PATH; if that one does not fit, Spark ends in long traces.
So this process's Python is set if none was chosen, and a chosen one is tried before it is used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from barnabas.streams.wal import WalError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHOSEN = "PYSPARK_PYTHON"
_TRIAL = "import sys; print('%d.%d' % sys.version_info[:2], flush=True); import pyspark, barnabas.streams.source.source"
_TRIAL_SECONDS = 60


def check_workers(spark: SparkSession) -> None:
    """Raises WalError, with the remedy, if the workers' Python cannot run the data source."""
    try:
        context = spark.sparkContext
    except Exception:  # Spark Connect has none: its server has its own workers
        return
    if not (context.master or "").startswith("local"):
        return
    if _CHOSEN not in os.environ:
        context.pythonExec = sys.executable
    found = shutil.which(context.pythonExec)
    if found is None:
        raise WalError(_remedy(context.pythonExec, "is not there"))
    if os.path.abspath(found) != os.path.abspath(sys.executable) and (problem := _trial(found)):
        raise WalError(_remedy(found, problem))


def _trial(python: str) -> str | None:
    """What another Python lacks."""
    try:
        done = subprocess.run([python, "-c", _TRIAL], capture_output=True, text=True, timeout=_TRIAL_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not run ({error})"
    version, mine = done.stdout.strip(), ".".join(map(str, sys.version_info[:2]))
    if done.returncode and not version:
        return "does not run"
    if version != mine:
        return f"is Python {version}, while this is {mine}"
    if done.returncode:
        return f"lacks a package that it needs ({(done.stderr.strip().splitlines() or ['it does not say what'])[-1]})"
    return None


def _remedy(python: str, problem: str) -> str:
    return f"Spark's workers are to run {python}, which {problem}: unset {_CHOSEN}, or set it to {sys.executable}"
