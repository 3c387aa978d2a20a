"""Several nodes as an operator runs them: processes that a supervisor watches."""
