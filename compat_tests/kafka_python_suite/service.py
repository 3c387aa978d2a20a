"""Stands in for `test.service`, which the source distribution leaves out: brokers that its fixtures did not start."""


class ExternalService:
    """A broker that somebody else runs."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def open(self) -> None:
        """It runs."""

    def close(self) -> None:
        """It goes on."""


class SpawnedService:
    """Not used: KAFKA_URI says that there is a broker."""

    def __init__(self, *_: object, **__: object) -> None:
        raise RuntimeError("set KAFKA_URI")
