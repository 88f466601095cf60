"""The `pdinference` command."""

from pdinference.cli.commands import main

__all__ = ["main"]
