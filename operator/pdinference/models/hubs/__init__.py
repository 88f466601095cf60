"""Hubs that models come from: their lists of files, and the files."""
