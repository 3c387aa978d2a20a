"""Requests that are sent before earlier requests are answered."""
