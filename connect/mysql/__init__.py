"""The client's side of the protocol of MariaDB and MySQL, as far as a replica needs it."""
