"""The data directory of a broker that runs on this machine."""

from __future__ import annotations

import os

from barnabas.client.admin import cluster_id, log_dir
from barnabas.client.cluster import Cluster
from barnabas.streams.wal.errors import WalError
from barnabas.streams.wal.log_dir import LogDir


def log_dir_of(cluster: Cluster, server: str, data_dir: str | None = None) -> LogDir:
    """The logs of the broker at `server`: in `data_dir`, or in the directory that the broker reports.

    Raises WalError if they are not there, and ClientError.
    """
    path = data_dir or log_dir(cluster)
    if data_dir is None and not os.path.isdir(path):
        raise WalError(
            f"the broker at {server} keeps its logs in {path}, which is not on this machine: run this there, or set "
            "--data-dir to where the folder is mounted"
        )
    found = LogDir(path, bootstrap=server)
    told = cluster_id(cluster)
    if told != found.cluster_id:
        raise WalError(
            f"{path} is of cluster {found.cluster_id}, the broker at {server} of {told}: "
            "set --data-dir to the broker's log.dir"
        )
    return found
