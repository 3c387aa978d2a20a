from collections.abc import Sequence

from barnabas.wire.aliases import BytesLike

def decode(batches: Sequence[tuple[BytesLike, int, int, int, int, int, int, int, int]], columns: int) -> tuple: ...  # type: ignore[type-arg]
