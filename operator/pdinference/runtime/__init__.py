"""The operator process: how it starts, watches, leads, answers the API server, and stops."""
