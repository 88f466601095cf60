"""Command lines and environment variables of a resource's containers, as data. No shell is involved."""
