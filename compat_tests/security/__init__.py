"""Real clients that log in, over encrypted connections."""
