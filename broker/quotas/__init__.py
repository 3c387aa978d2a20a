"""How much clients may use: rates, which quota is a client's, and how both become a throttle time."""
