"""The client's side of TLS, as Kafka's keys `ssl.*` say."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from barnabas.client.errors import ClientError


def client_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    """Whom we trust, and what we show. Raises ClientError."""
    context = ssl.create_default_context()
    if not properties.get("ssl.endpoint.identification.algorithm", "https").strip():
        context.check_hostname = False
    try:
        if texts := properties.get("ssl.truststore.certificates"):
            context = _trusting(context, texts)
    except ssl.SSLError as error:
        raise ClientError(f"ssl.truststore.certificates: {error.reason}") from None
    return context


def _trusting(context: ssl.SSLContext, texts: str) -> ssl.SSLContext:
    only = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    only.check_hostname = context.check_hostname
    only.load_verify_locations(cadata=texts)
    return only
