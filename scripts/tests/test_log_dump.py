"""`log dump`: its output for sound, preallocated and damaged segments."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.scripts.cli import main
from barnabas.wire.batch import Record, build_batch


def segment(folder: Path, *batches: bytes, name: str = f"{0:020d}.log") -> Path:
    path = folder / name
    path.write_bytes(b"".join(batches))
    return path


def batch(first: int, *values: bytes) -> bytes:
    data = bytearray(build_batch([Record(b"key", value, 0, (("h", b"1"),)) for value in values]))
    data[:8] = first.to_bytes(8, "big")  # not covered by the CRC
    return bytes(data)


def test_batches_and_records_are_shown_with_their_offsets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment(tmp_path, batch(0, b"a", b"b"), batch(5, b"c"))
    assert main(["log", "dump", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "batch 0..1  position 0" in shown
    assert "batch 5..5" in shown
    assert "  5  1970-01-01T00:00:00.000Z  key 'key'  value 'c'  headers h='1'" in shown
    assert main(["log", "dump", "--batches-only", str(tmp_path)]) == 0
    assert "value" not in capsys.readouterr().out


@pytest.mark.parametrize("at", [-3, 20, 60])
def test_a_damaged_byte_is_found_and_what_stands_before_it_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], at: int
) -> None:
    whole, broken = batch(0, b"a"), bytearray(batch(1, b"b"))
    broken[at] ^= 1
    path = segment(tmp_path, whole, bytes(broken))
    assert main(["log", "dump", str(path)]) == 1
    shown = capsys.readouterr()
    assert "value 'a'" in shown.out
    assert "value 'b'" not in shown.out
    assert f"damaged at position {len(whole)}" in shown.err


def test_offsets_that_go_back_are_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = segment(tmp_path, batch(5, b"a"), batch(3, b"b"))
    assert main(["log", "dump", str(path)]) == 1
    assert "offset 3 where at least 6 is due" in capsys.readouterr().err


def test_room_that_is_reserved_is_no_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = batch(0, b"a")
    path = segment(tmp_path, whole, bytes(300))
    assert main(["log", "dump", str(path)]) == 0
    assert f"room for more  position {len(whole)}  bytes 300" in capsys.readouterr().out
