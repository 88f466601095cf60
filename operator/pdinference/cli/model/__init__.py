"""`pdinference model`."""
