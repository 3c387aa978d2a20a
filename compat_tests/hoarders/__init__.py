"""Clients that use up shared resources, and ordinary clients beside them."""
