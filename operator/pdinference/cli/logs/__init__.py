"""`pdinference logs`: the logs of all pods of a role."""
