"""Requests that are sent without waiting for the answers before them."""
