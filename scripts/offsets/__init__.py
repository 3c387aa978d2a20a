"""Moves committed offsets between ZooKeeper, Kafka and barnabas: `barnabas offsets`.

store      the interface of a store of offsets; positions, and problems with one of them
zookeeper  kafka  files   the stores
translate  positions between logs that hold the same records at different offsets
plan       what a copy would do, from the positions of both stores: pure
journal    the old positions, so that they can be restored
transfer   carries out a plan: journal, write, read back
command    the sub-commands
migrate    status, and the four steps that move groups while they run
"""
