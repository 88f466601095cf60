"""Everything that touches the API server: client, cache of live objects, apply, prune."""
