"""Autoscaling: signals, presets of the HPAs, replica counts, and their part of the status."""
