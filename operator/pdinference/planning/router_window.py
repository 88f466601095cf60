"""The window over which the counters of routers are compared.

Tests: tests/planning/test_objectives.py
"""

from typing import Final

WINDOW_S: Final = 300.0
"""Its length."""
