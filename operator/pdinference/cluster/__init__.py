"""Access to the API server: client, cache of live objects, apply, prune."""
