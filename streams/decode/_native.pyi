from collections.abc import Sequence

from barnabas.wire.compression import Bytes

def decode(batches: Sequence[tuple[Bytes, int, int, int, int, int, int, int, int]], columns: int) -> tuple: ...  # type: ignore[type-arg]
