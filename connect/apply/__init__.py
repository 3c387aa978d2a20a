"""Applies a subscription's topics to another MariaDB or MySQL server."""
