"""How the nodes of one broker log in to each other: SCRAM, with a secret in the data directory as its password."""

#: The name of the mechanism. No list of mechanisms has it.
MECHANISM = "BARNABAS-NODE"
#: The mechanism of SCRAM that it is.
SCRAM = "SCRAM-SHA-256"
NAME = "node"
