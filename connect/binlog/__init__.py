"""Changes of a MariaDB or MySQL server, from its binary log, as records of topics."""
