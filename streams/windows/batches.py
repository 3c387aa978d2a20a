"""The batches of a query in Spark's checkpoint, and those that must be run again.

    CHECKPOINT/offsets/N     what batch N reads, written before it runs
    CHECKPOINT/commits/N     batch N is done

A checkpoint that is older than the results, such as a restored copy, lacks batches whose results are already in the
topic. These batches are run again with their old offsets, so their numbers, their watermarks and the state after them
are the same, and it is known that their results are already written. Before a batch's results are written, its offsets
are noted in the log that driver and broker share. Spark itself repeats the first of these batches, as after a crash;
for the others the source gives the offsets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from barnabas.client.cluster import Cluster
from barnabas.client.errors import ClientError
from barnabas.client.fetch import Reader
from barnabas.client.offsets import EARLIEST, LATEST, list_offsets
from barnabas.streams.windows.foreseen import FORESEEN, PLACE
from barnabas.wire.internal_topics import QUERIES_TOPIC
from barnabas.wire.queries.messages import StreamBatch, decode

OFFSETS, COMMITS = "offsets", "commits"


def last_batch(checkpoint: str, log: str = OFFSETS) -> int:
    """The number of the last batch in one of the two logs; -1 if there is none."""
    try:
        names = os.listdir(os.path.join(checkpoint, log))
    except FileNotFoundError:
        return -1
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def text_of(checkpoint: str, batch: int) -> str:
    """A batch's entry about what it reads, as written by Spark. Raises OSError."""
    return Path(checkpoint, OFFSETS, str(batch)).read_text()


def source_offset(text: str) -> dict[str, Any]:
    """The source's part of the entry. Raises msgspec.DecodeError."""
    return msgspec.json.decode(text.strip().split("\n")[-1], type=dict[str, Any])


def watermark_ms(text: str) -> int:
    """A batch's watermark, in ms since 1970. Raises msgspec.DecodeError."""
    return msgspec.json.decode(text.split("\n")[1], type=_Metadata).batchWatermarkMs


class _Metadata(msgspec.Struct):
    """Spark's note about a batch."""

    batchWatermarkMs: int


class _Commit(msgspec.Struct):
    """Spark's note about a completed batch."""

    nextBatchWatermarkMs: int = 0


def next_watermark_ms(checkpoint: str) -> int:
    """The watermark after the last completed batch, in ms since 1970; 0 if there is none."""
    last = last_batch(checkpoint, COMMITS)
    try:
        text = Path(checkpoint, COMMITS, str(last)).read_text()
        return msgspec.json.decode(text.split("\n")[1], type=_Commit).nextBatchWatermarkMs
    except (OSError, IndexError, msgspec.DecodeError):
        return 0


def owed_watermark_ms(checkpoint: str) -> int:
    """The watermark after the last completed batch if that batch has closed windows by an earlier one; otherwise 0."""
    last = last_batch(checkpoint, COMMITS)
    try:
        after, had = next_watermark_ms(checkpoint), watermark_ms(text_of(checkpoint, last))
    except (OSError, IndexError, msgspec.DecodeError):
        return 0
    return after if after > had else 0


def noted(cluster: Cluster, queries: Sequence[str]) -> dict[int, str]:
    """What the batches of a query read, as noted under these ids. Later ids take precedence.

    Raises ClientError.
    """
    key = (QUERIES_TOPIC, 0)
    reader = Reader(cluster, QUERIES_TOPIC)
    try:
        reader.positions = {0: list_offsets(cluster, [key], EARLIEST)[key]}
        end = list_offsets(cluster, [key], LATEST)[key]
    except ClientError:
        return {}
    found: dict[str, dict[int, str]] = {query: {} for query in queries}
    while reader.positions[0] < end:
        for _, record in reader.poll(0):
            message = decode(record.value)
            if isinstance(message, StreamBatch) and message.query in found:
                found[message.query][message.batch] = message.offsets
    return {batch: offsets for query in queries for batch, offsets in found[query].items()}


def make_again(checkpoint: str, replay_file: str, texts: Mapping[int, str]) -> None:
    """Make the next run of the query begin with these batches, which follow the checkpoint's last one.

    Raises OSError, msgspec.DecodeError.
    """
    last = last_batch(checkpoint)
    offsets = _ends_of(texts, source_offset(text_of(checkpoint, last)) if last >= 0 else {})
    new = Path(f"{replay_file}.new")
    new.write_bytes(msgspec.json.encode({str(batch): offset for batch, offset in offsets.items()}))
    new.replace(replay_file)
    if last == last_batch(checkpoint, COMMITS):  # otherwise Spark has one to repeat
        path = Path(checkpoint, OFFSETS, str(last + 1))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        hidden = path.with_name(f".{path.name}.replay.tmp")
        hidden.write_text(texts[last + 1])
        hidden.replace(path)


def _ends_of(texts: Mapping[int, str], before: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Where batches end, each at another place than the one before, or Spark would not plan it.

    A batch that Spark itself planned without records ends where the one before does. It gets its watermark as the
    foreseen one.
    """
    found = {}
    for batch, text in sorted(texts.items()):
        offset = source_offset(text)
        is_new = offset != before
        found[batch] = offset if is_new else {**offset, PLACE: {**offset.get(PLACE, {}), FORESEEN: watermark_ms(text)}}
        before = offset
    return found


class Replay:
    """Where the repeated batches end, for the source."""

    def __init__(self, replay_file: str) -> None:
        """Without this file, nothing is repeated."""
        self._checkpoint = os.path.join(os.path.dirname(replay_file), "checkpoint")
        self._offsets: dict[int, dict[str, Any]] = {}
        try:
            self._offsets = msgspec.json.decode(Path(replay_file).read_bytes(), type=dict[int, dict[str, Any]])
        except FileNotFoundError:
            pass

    def next(self) -> dict[str, Any] | None:
        """The end of the batch that Spark plans now; None if it is not a repeated one."""
        if not self._offsets:
            return None
        following = last_batch(self._checkpoint) + 1
        if following > max(self._offsets):
            self._offsets = {}
        return self._offsets.get(following)
