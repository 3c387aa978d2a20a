"""Committed offsets in ZooKeeper, where consumers once kept them: the znodes, and a session to reach them.

layout    paths, and what a znode holds: pure
session   one connection, through kazoo; kazoo is imported only when a session is made
offsets   positions of groups: read, and written on the versions that were read

The broker keeps offsets there for consumers that still look there; `barnabas offsets` moves them.
"""
