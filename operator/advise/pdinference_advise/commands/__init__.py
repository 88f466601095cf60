"""Commands that join `pdinference` by entry points."""
