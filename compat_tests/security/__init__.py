"""Real clients that say who they are, and that nobody else can read."""
