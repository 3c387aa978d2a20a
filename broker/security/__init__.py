"""Who a client is, what it may do, and who decides: authentication and authorization. See docs/security.md."""
