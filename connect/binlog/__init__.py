"""Changes of a MariaDB or MySQL server, read from its binary log, as records of topics."""
