"""KV connectors, one module for each."""
