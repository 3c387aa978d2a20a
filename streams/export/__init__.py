"""Topics to Parquet files, one Spark task for each partition.

The target folder is the only state. A partition's rows are in `topic=orders/partition=0/<first offset>-<last
offset>.parquet`. A file gets its name only when it is complete and on disk, and the next file begins where it ends. So
a killed run can simply be started again, and a later run appends.

    command.py   the steps of a run, in order
    target.py    the folder: its one writer, names, positions, files
    partition.py what one task does
    spark.py     whether Spark can run, and a task for each partition
    progress.py  a bar on a terminal, lines elsewhere
"""

from __future__ import annotations

from barnabas.streams.export.command import Request, Totals, export
from barnabas.streams.export.partition import ExportPlan, Work, export_partition

__all__ = ["ExportPlan", "Request", "Totals", "Work", "export", "export_partition"]
