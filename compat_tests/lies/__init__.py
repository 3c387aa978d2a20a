"""Clients that lie."""
