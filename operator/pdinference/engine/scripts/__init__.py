"""Programs that run in pods with nothing but Python's standard library."""
