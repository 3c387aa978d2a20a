"""The broker of the tests beside the room."""

from barnabas.broker.tests.conftest import start

__all__ = ["start"]
