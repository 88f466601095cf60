"""The number of examples of property tests, from the Hypothesis profile that pytest has selected."""

from hypothesis import settings

MORE = 1 if settings.default is None or settings.default.derandomize else 20
"""How many times as many examples `make explore` tries, where a test takes more than by default."""
