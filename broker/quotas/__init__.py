"""How much clients may use: rates, the quota of each client, and the throttle time from both."""
