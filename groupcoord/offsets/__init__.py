"""Committed offsets: those of all group types, pending in transactions, expired, and in a second store."""
