"""How many pods each role should have: signals, presets for the HPAs, and bounds that keep two HPAs together."""
