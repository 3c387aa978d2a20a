"""Query topics and streams, as the broker sees them, and the process of the streams driver."""
