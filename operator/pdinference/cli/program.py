"""The program around all commands: how errors are printed, and output that cannot be written.

Tests: tests/cli/test_output.py, tests/cli/test_chat.py
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from pdinference.cli.lazy_group import LazyGroup
from pdinference.cli.output import wrap_error

_UNWRITABLE: Final = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of writes. A command reports errors of the network and of files that it opens itself."""


class Program(LazyGroup):
    """A group of commands whose errors are messages, wrapped at words."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program; the arguments are those of click."""
        with _writes_reported():
            return super().main(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            wrap_error(error)
            raise


@contextmanager
def _writes_reported() -> Iterator[None]:
    """Exit with status 1 if standard output cannot be written, without a message if its reader left (`... | head`)."""
    if sys.stdout is None:  # it was closed
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # Python would write the rest at exit, and print a traceback
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the rest
        if error.errno != errno.EPIPE:
            click.echo(f"Error: The output cannot be written: {error.strerror}.", err=True)
        sys.exit(1)
