"""What the cluster is: the image of the metadata log, its records and snapshots, and the changes of topics."""
