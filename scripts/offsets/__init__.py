"""Moving committed offsets between ZooKeeper, Kafka and barnabas: `barnabas offsets`.

store      what a place with offsets can do; positions, and what goes wrong with one of them
zookeeper  kafka  files   the places
translate  positions in logs that hold the same records at other offsets
plan       what a copy would do, from what is here and what is there: pure
journal    what was there before, so that it can be put back
transfer   carry out a plan: journal, write, read back
command    the sub-commands
migrate    status, and the four steps of groups that move while they run
"""
