"""Clients that send false data."""
