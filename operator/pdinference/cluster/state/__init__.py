"""Extracts the records that the cache keeps from complete objects."""
