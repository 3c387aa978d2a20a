"""Reading beyond one look: fetch sessions, which remember what a client follows, and look-ups by time."""
