"""The classic group: its members, its states, and the two barriers of a rebalance."""
