"""A connection: listening, the socket, frames, the order of requests, answers. It knows no topic, group or setting
of a topic.
"""
