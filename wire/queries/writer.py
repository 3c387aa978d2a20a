"""How the streams driver proves who it is: the broker writes a secret to a file, which stands in the driver's
transactional id (decision 13)."""

from __future__ import annotations

#: What the transactional id begins with; a colon and the secret follow.
WRITER_ID = "barnabas.streams"
#: The file in the data directory that holds the whole transactional id.
SECRET_FILE = "streams-driver.secret"
#: The file beside it that says how the driver gets in: a `client.properties`.
PROPERTIES_FILE = "streams-driver.properties"
