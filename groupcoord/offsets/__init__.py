"""Committed offsets: of groups of any type, pending in transactions, expired, and kept in a second place."""
