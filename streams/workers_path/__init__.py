"""A folder for the path of Spark's Python workers: Python runs its `sitecustomize` when such a process starts."""
