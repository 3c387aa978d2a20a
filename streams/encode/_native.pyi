from typing import Any

def encode(
    offset: Any,
    timestamp: Any,
    lists: Any,
    key: Any,
    value: Any,
    names: Any,
    contents: Any,
    row: int,
    base_offset: int,
    max_bytes: int,
) -> tuple[bytes, int, int]: ...
