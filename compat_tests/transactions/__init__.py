"""Transactional producers and read_committed consumers of every client."""
