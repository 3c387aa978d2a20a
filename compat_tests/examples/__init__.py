"""The programs of docs/examples, run as their pages say, and killed where a page says that a kill does no harm."""
