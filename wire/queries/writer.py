"""How the streams driver proves its identity: by a secret in its transactional id (decision 13).

The broker writes that secret to a file.
"""

from __future__ import annotations

#: The beginning of the transactional id; a colon and the secret follow.
WRITER_ID = "barnabas.streams"
#: The file in the data directory with the whole transactional id.
SECRET_FILE = "streams-driver.secret"
#: The file beside it with the driver's connection settings: a `client.properties`.
PROPERTIES_FILE = "streams-driver.properties"
