"""Data directories of released versions: the current code opens them, and finds all of their content."""
