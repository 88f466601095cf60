"""`pdinference doctor`: checks whether a cluster has what the KV transfer of a resource needs."""
