"""Histories: what concurrent clients did and saw while faults hit a broker, and whether an honest log explains it."""
