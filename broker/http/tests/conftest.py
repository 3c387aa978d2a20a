"""The fixtures of broker/tests."""

from barnabas.broker.tests.conftest import start

__all__ = ["start"]
