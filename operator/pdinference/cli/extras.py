"""What a command says that needs a package which is not installed.

The command line alone needs few packages. Those of the programs in pods, and the clients of hubs, are extras of the
distribution (pyproject.toml).

Tests: tests/cli/test_extras.py, tests/test_wheel.py
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

OPERATOR: Final = "operator"
HUBS: Final = "hubs"
_OWN: Final = "pdinference"


class NotInstalledError(click.ClickException):
    """A command cannot run without a package.

    Args:
        package: The package that is missing.
        remedy: What has it, as pip takes it: a distribution with an extra.
    """

    def __init__(self, package: str, remedy: str) -> None:
        context = click.get_current_context(silent=True)
        command = context.command_path if context else _OWN
        super().__init__(f"`{command}` needs {package}, which is not installed: install {remedy}.")
        self.package, self.remedy = package, remedy


@contextmanager
def of_extra(extra: str) -> Iterator[None]:
    """Imports of modules that need the packages of an extra.

    Raises:
        NotInstalledError: A package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if package == _OWN:
            raise
        raise NotInstalledError(package, f"{_OWN}[{extra}]") from None
