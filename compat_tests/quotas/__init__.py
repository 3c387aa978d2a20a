"""Clients that take what all share, and ordinary ones beside them."""
