"""How the streams driver logs in: SCRAM by a name of its own, with the secret in the data directory as its password."""

#: The name of the mechanism. No list of mechanisms has it.
MECHANISM = "BARNABAS-DRIVER"
#: The mechanism of SCRAM that it is.
SCRAM = "SCRAM-SHA-256"
NAME = "driver"
#: The key of a client's settings that names the file with the secret; relative to the file with the settings.
SECRET_FILE = "barnabas.driver.secret.file"
