"""Data directories that released versions have left: the code of today opens them, and finds all that was in them."""
