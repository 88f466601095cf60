"""The console on which commands print tables.

Tests: tests/cli/test_narrow.py, tests/cli/test_top.py
"""

from rich.console import Console

_WIDTH_OFF_TERMINAL = 120


def terminal() -> Console:
    """A console for standard output with the width of the terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH_OFF_TERMINAL)
