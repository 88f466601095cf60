"""Model hubs: file lists and downloads."""
