"""The project's own Kafka client: blocking, small, on the broker's codecs. Command line and streams stand on it.

connection   one connection: frames and versions
security     TLS and login, as a client.properties of Kafka says
cluster      brokers, leaders, coordinators; what is asked again when a connection is lost
retry        when to ask again, and how long to wait before
offsets      ListOffsets, of the leaders
produce      batches to the leaders
fetch        records from the leaders
groups       committed offsets, and the member of a group
admin        topics and their configuration
"""
