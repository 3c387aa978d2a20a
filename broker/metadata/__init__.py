"""The cluster's metadata: the image of its log, its records and snapshots, and the changes of topics."""
