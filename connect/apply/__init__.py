"""The way back: a subscription's topics into another MariaDB or MySQL server."""
