"""The `barnabas` command and the operator's tools."""
