"""The coordinators of groups and of transactions in the broker: their logs and clocks, and their replies."""
