"""Seeded requests: every API and version with plausible and implausible values, some of them with damaged bytes."""

from __future__ import annotations

import random
from typing import Any

import construct as C

import barnabas.broker.apis  # noqa: F401  registers what is served
from barnabas.broker.registry import APIS
from barnabas.wire.batch import Record, build_batch
from barnabas.wire.codegen import message_codec
from barnabas.wire.header import write_request_header
from barnabas.wire.schema import Blob, Entity, NullableStruct, ProtocolError, Seq, Text, schema

TOPICS = ["fuzz-a", "fuzz-b", "fuzz-c", "fuzz.c", "fuzz_c", "__consumer_offsets", "__cluster_metadata", "x" * 249]
GROUPS = ["group-a", "group-b", "group-c"]
TEXTS = [
    "", ".", "..", "a b", "ü" * 40, "x" * 250, "y" * 30_000, "range", "consumer", "connect", "uniform", "1", "true",
    "retention.ms", "cleanup.policy", "segment.bytes", "max.message.bytes", "log.retention.ms", "compact", "-1", "1024",
    "member-1", "client", "0.1", "PLAINTEXT", "delete,compact", "message.timestamp.type", "LogAppendTime", "zstd",
]  # fmt: skip
# No numbers in between: a topic with many thousand partitions is legal and would only make the run slow.
NUMBERS = [-(2**31), -7, -3, -2, -1, 0, 1, 2, 3, 4, 7, 32, 100, 127, 128, 255, 2**31 - 1]
NARROW = {"b": 8, "h": 16, "l": 32, "i": 32, "q": 64}
UNSIGNED = {"B": 8, "H": 16, "I": 32, "L": 32}


class Generator:
    """Requests from one seeded source of randomness."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        # Most damage ends a connection; generators with little damage reach deeper code.
        self.damage = self.random.choice([0.02, 0.05, 0.35])

    def frame(self) -> bytes:
        """A request with its length in front."""
        roll = self.random.random()
        if roll < 0.02:
            body = self.random.randbytes(self.random.choice([0, 1, 7, 8, 14, 60, 3000]))
        else:
            key = self.random.choice(list(APIS)) if roll > 0.04 else self.random.randrange(-2, 100)
            body = self.request(key)
        if self.random.random() < self.damage:
            body = self.damaged(body)
        size = len(body)
        if self.random.random() < 0.01:
            size = self.random.choice([-1, 0, size + 1, max(0, size - 1), 2**31 - 1, 150 << 20, 90 << 20])
        return size.to_bytes(4, "big", signed=True) + body

    def request(self, key: int) -> bytes:
        """Header and body of a request of an API."""
        api = APIS.get(key)
        if api is None:
            return write_request_header(key, self.random.randrange(-1, 20), 1, "fuzz", True)
        version = self.random.randint(api.versions.first, api.versions.last)
        if self.random.random() < 0.02:
            return write_request_header(key, self.random.choice([-1, 99, 32767]), 1, "fuzz", True)
        head = write_request_header(
            key, version, 1, self.random.choice(["fuzz", "", None]), version >= api.flexible_from
        )
        try:
            return head + message_codec(api.request, version).build(self.value(schema(api.request, version), ""))
        except ProtocolError:  # the text is too long for its length field
            return head

    def damaged(self, data: bytes) -> bytes:
        """The bytes with some of them changed, gone or doubled."""
        out = bytearray(data)
        for _ in range(self.random.choice([1, 1, 1, 2, 5])):
            if not out:
                break
            at = self.random.randrange(len(out))
            kind = self.random.randrange(5)
            if kind == 0:
                out[at] ^= 1 << self.random.randrange(8)
            elif kind == 1:
                del out[at:]
            elif kind == 2:
                out[at : at + 1] = self.random.choice([b"\xff", b"\0", b"\x7f", b"\x80", b"\xff\xff\xff\xff\x0f"])
            elif kind == 3:
                out[at:at] = out[at : at + self.random.randrange(1, 40)]
            else:
                out[at : at + 4] = self.random.choice(NUMBERS).to_bytes(4, "big", signed=True)
        return bytes(out)

    def value(self, con: C.Construct, name: str) -> Any:
        """A value for a field, by its type and a little by its name."""
        if isinstance(con, C.Renamed):
            return self.value(con.subcon, con.name)
        if isinstance(con, C.FormatField):
            return self.number(con.fmtstr[1:], name)
        if isinstance(con, C.Bytes):
            return self.random.choice([bytes(16), bytes(15) + b"\1", self.random.randbytes(16)])
        if isinstance(con, (Text, Blob, Seq)) and con.nullable and self.random.random() < 0.15:
            return None
        if isinstance(con, Text):
            return self.text(name)
        if isinstance(con, Blob):
            return self.batch() if name == "records" else self.random.randbytes(self.random.choice([0, 1, 9, 300]))
        if isinstance(con, Seq):
            count = self.random.choice([0, 1, 1, 1, 2, 3, 30])
            return [self.value(con.subcon, name) for _ in range(count if count < 30 else self.random.choice([3, 30]))]
        if isinstance(con, NullableStruct):
            return None if self.random.random() < 0.5 else self.value(con.subcon, name)
        if isinstance(con, Entity):
            fields = {sub.name: self.value(sub, sub.name) for sub in con.subcons}
            for tagged, field in con.tagged.values():
                if self.random.random() < 0.3:
                    fields[tagged] = self.value(field, tagged)
            return con.cls(**fields)
        raise TypeError(f"no values for {con!r}")

    def text(self, name: str) -> str:
        if "topic" in name or (name == "name" and self.random.random() < 0.8):
            return self.random.choice(TOPICS[:3]) if self.random.random() < 0.6 else self.random.choice(TOPICS)
        if "group" in name or name in ("key", "coordinator_keys"):
            return self.random.choice(GROUPS)
        return self.random.choice(TEXTS + TOPICS)

    def number(self, code: str, name: str) -> Any:
        if code == "?":
            return self.random.random() < 0.5
        if code == "d":
            return self.random.choice([0.0, -1.0, 1e300, float("nan")])
        if "wait" in name or "timeout" in name:
            return self.random.choice([-1, 0, 0, 1, 5, 5, 20, 6000])
        if name in ("acks", "resource_type", "key_type", "partition", "index", "partition_index") and (
            self.random.random() < 0.7
        ):
            return self.random.choice([-1, 0, 0, 1, 2, 4])
        number = self.random.choice(NUMBERS)
        if code in UNSIGNED:
            return number % 2 ** UNSIGNED[code]
        half = 2 ** (NARROW[code] - 1)
        return max(-half, min(half - 1, number))

    def batch(self) -> bytes:
        """Record data: in most cases one batch that could be stored."""
        pick = self.random
        records = [
            Record(
                pick.choice([None, b"k", b""]), pick.choice([None, b"", b"v" * pick.randrange(200)]), 1_700_000_000_000
            )
            for _ in range(pick.choice([1, 1, 2, 20]))
        ]
        producer = pick.choice([-1, -1, 0, 1, 2**62])
        data = build_batch(
            records,
            compression=pick.randrange(5),
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=pick.choice([0, 1, 2**31 - 1]) if producer >= 0 else -1,
            is_transactional=pick.random() < 0.05,
            is_control=pick.random() < 0.05,
        )
        roll = pick.random()
        if roll < 0.2:
            return self.damaged(data)
        return data * 2 if roll < 0.25 else data
