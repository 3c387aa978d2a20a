"""What holds for all tests: none has a limit of time but pytest's own, as a busy machine would break it."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("project", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("project")
