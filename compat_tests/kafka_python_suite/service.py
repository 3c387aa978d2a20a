"""Stands in for `test.service`, which the source distribution leaves out: brokers that its fixtures did not start."""


class ExternalService:
    """A broker that the tests run, not the suite."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def open(self) -> None:
        """Do nothing: the broker runs already."""

    def close(self) -> None:
        """Do nothing: the broker keeps running."""


class SpawnedService:
    """Not used: KAFKA_URI names a broker."""

    def __init__(self, *_: object, **__: object) -> None:
        raise RuntimeError("set KAFKA_URI")
