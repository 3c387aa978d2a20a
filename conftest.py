"""What holds for all tests: none has a limit of time but pytest's own, as a busy machine would break it."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")
# Spark's JVMs of the tests end soon: code compiled quickly takes less of the CPU than code compiled well.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
