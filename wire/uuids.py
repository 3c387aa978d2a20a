"""Ids of topics, directories and clusters as Kafka prints them: URL-safe base64 without padding."""

from __future__ import annotations

import base64


def encode_uuid(uuid: bytes) -> str:
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()
