"""How the streams driver logs in: SCRAM with its own name, and the secret in the data directory as its password."""

#: The mechanism's name. No list of mechanisms shows it.
MECHANISM = "BARNABAS-DRIVER"
#: The SCRAM mechanism that it uses.
SCRAM = "SCRAM-SHA-256"
NAME = "driver"
#: A client setting: the file with the secret, relative to the settings file.
SECRET_FILE = "barnabas.driver.secret.file"
