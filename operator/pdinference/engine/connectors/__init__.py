"""KV connectors: for each, a module with all that the operator decides."""
