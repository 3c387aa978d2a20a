"""The client side of MariaDB's and MySQL's protocol, as far as a replica needs it."""
