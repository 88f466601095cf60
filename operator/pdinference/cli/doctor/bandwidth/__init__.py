"""Measures how fast KV cache moves between two pods like those of P and D."""
