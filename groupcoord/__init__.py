"""Coordinators as sans-I/O state machines, and their log-backed stores."""
