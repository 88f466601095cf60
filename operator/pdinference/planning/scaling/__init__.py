"""How many pods each role should have: signals, presets for the HPAs, and what the status says."""
