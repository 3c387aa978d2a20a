"""The programs of docs/examples, run as their pages say, and killed where they say that it does no harm."""
