"""How the nodes of one broker log in to each other: SCRAM with the secret in the data directory as password."""

#: The mechanism's name. No list of mechanisms shows it.
MECHANISM = "BARNABAS-NODE"
#: The SCRAM mechanism that it uses.
SCRAM = "SCRAM-SHA-256"
NAME = "node"
