"""The project's own Kafka client: blocking and small, built on the broker's codecs. Command line and streams use it.

connection   one connection: frames and versions
security     TLS and login, from a client.properties of Kafka
cluster      brokers, leaders, coordinators; what to repeat when a connection is lost
retry        when to ask again, and after which pause
offsets      ListOffsets, from the leaders
produce      batches to the leaders
fetch        records from the leaders
groups       committed offsets, and the member of a group
admin        topics and their configuration
"""
