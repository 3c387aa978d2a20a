"""Async tests run under trio."""

from pytest_trio.enable_trio_mode import *  # type: ignore[import-untyped]  # noqa: F403
