"""The batch runner, which the Job of a PDBatch runs. Only the ConfigMap store uses the API server."""
