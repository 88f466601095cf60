"""The window over which the counters of routers are compared."""

from typing import Final

WINDOW_S: Final = 300.0
"""Its length."""
