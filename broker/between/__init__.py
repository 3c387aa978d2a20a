"""Several processes that form one broker. Each is a node, and asks other nodes for what only they know or may do.

membership  which nodes exist, and which of them owns the metadata log
secret      the secret with which nodes log in to each other
channel     one connection to a node
channels    all connections to other nodes: ask a node, and get its answer
envelopes   a client's request for another node, and its answer (KIP-590)
forwarding  a client's request that only the owner of the metadata may carry out (KIP-590)
following   reads the owner's metadata log and applies it on another node
followers   on the owner: which nodes follow the log, and how far each is
snapshots   on the owner: the snapshots of the metadata that other nodes begin with
"""
