"""Decisions as pure functions: roll-outs, replica counts, memory plans, statuses."""
