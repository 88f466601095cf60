"""What a person sees while things happen."""

import time

from rich.console import Console
from rich.markup import escape

console = Console(highlight=False, soft_wrap=True)
_START = time.monotonic()


def say(text: str) -> None:
    """Print a line with the time since the start."""
    console.print(f"[dim]{time.monotonic() - _START:5.0f} s[/dim]  {escape(text)}")


def headline(text: str) -> None:
    """Announce a stage."""
    console.print(f"\n[bold]{text}[/bold]")
