"""Spark's `wal` data source: options, offsets, schemas, and the readers for batch and streaming queries."""
