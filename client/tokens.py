"""Access tokens for OAUTHBEARER logins of our own clients.

Source: KIP-768, KIP-1139; RFC 6749, 4.4.
"""

from __future__ import annotations

import base64
import json
import urllib.parse
import urllib.request
from collections.abc import Mapping

from barnabas.client.errors import ClientError, LostError
from barnabas.client.tls import client_context
from barnabas.client.urls import read_url, shown

_MAX_TOKEN_BYTES = 1 << 20


def token(properties: Mapping[str, str], options: Mapping[str, str]) -> str:
    """A new token: from a file, or from the token endpoint for the client's id and secret (RFC 6749, 4.4).

    Raises ClientError.
    """
    key = "sasl.oauthbearer.token.endpoint.url"
    url = properties.get(key, "")
    try:
        if urllib.parse.urlsplit(url).scheme == "file":
            return read_url(url, _MAX_TOKEN_BYTES).decode("ascii").strip()
        if not url:
            raise ClientError(f"sasl.mechanism=OAUTHBEARER needs {key}: a https:, http: or file: URL")
        return _granted(url, properties, options)
    except (OSError, ValueError) as error:
        raise LostError(f"No token from {shown(url)}: {error}") from None


def _granted(url: str, properties: Mapping[str, str], options: Mapping[str, str]) -> str:
    """Ask the token endpoint. Raises OSError, ValueError."""
    prefix = "sasl.oauthbearer.client.credentials.client"
    client = properties.get(f"{prefix}.id", options.get("clientId", ""))
    secret = properties.get(f"{prefix}.secret", options.get("clientSecret", ""))
    scope = properties.get("sasl.oauthbearer.scope", options.get("scope", ""))
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    credentials = f"{urllib.parse.quote(client, '')}:{urllib.parse.quote(secret, '')}"
    request = urllib.request.Request(
        url,
        urllib.parse.urlencode(form).encode(),
        {"Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}", "Accept": "application/json"},
    )
    token = json.loads(read_url(request, _MAX_TOKEN_BYTES, client_context(properties))).get("access_token")
    if not isinstance(token, str) or not token:
        raise ValueError("the answer has no access_token")
    return token
