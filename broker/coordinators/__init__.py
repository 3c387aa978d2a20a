"""The coordinators of groups and of transactions in the broker: their logs, clocks and the waiting for their
replies.
"""
