from barnabas.wire.compression import Bytes

def write(
    rows: int, columns: tuple[tuple[bytes, int, Bytes | None, Bytes | None, Bytes | None, int], ...]
) -> tuple[bytes, bytes]: ...
