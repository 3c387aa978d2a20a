"""Several processes that are one broker: each is a node, and asks the others what they alone know or may do.

membership  which nodes there are, and which of them owns the metadata log
secret      what nodes prove themselves with
channel     one connection to a node
channels    all connections to other nodes: ask a node, and get its answer
envelopes   a client's request for another node, and its answer (KIP-590)
forwarding  a client's request that only the owner of the metadata may carry out (KIP-590)
following   the metadata log as the owner has it, read and applied by another node
followers   on the owner: who follows, and how far
"""
