"""The transaction coordinator: producers with a transactional id, and the outcome of their transactions."""
