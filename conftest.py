"""What holds for all tests: none has a limit of time but pytest's own, as a busy machine would break it.

Property tests that take long have fewer examples by default; `--hypothesis-profile full` gives them all of theirs
(`barnabas.wire.tests.strategies.examples`).
"""

from __future__ import annotations

import os
import sys

from hypothesis import HealthCheck, settings

for profile in ("quick", "full"):
    settings.register_profile(profile, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quick")
# What one process has compiled the others take: without it each broker and each worker compiles the project anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Spark's JVMs of the tests end soon: code compiled quickly takes less of the CPU than code compiled well.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
