"""The simulation of `pdinference advise` against measured loads."""
