"""Several processes that are one broker: each is a node, and asks the others what they alone know or may do."""
