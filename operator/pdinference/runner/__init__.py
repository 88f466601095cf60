"""The batch runner: what the Job of a PDBatch runs. It knows files and HTTP, and nothing of Kubernetes."""
