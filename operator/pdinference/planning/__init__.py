"""Decisions as pure functions: which revision serves, what may go, what to report."""
