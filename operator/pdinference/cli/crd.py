"""The command `pdinference crd`.

Tests: tests/cli/test_commands.py
"""

import click

from pdinference.api.crd import definitions
from pdinference.cli.plain_yaml import print_yaml


@click.command("crd")
@click.argument("names_", metavar="[NAME]...", nargs=-1)
def crd_command(names_: tuple[str, ...]) -> None:
    """Print all CustomResourceDefinitions, or those with the given names."""
    found = definitions()
    for name in names_:
        if name not in found:
            raise click.ClickException(f"There is no definition {name}; there are {', '.join(found)}.")
    # Flow style for leaves makes the file a fifth smaller, because most of a schema is indentation.
    print_yaml([found[name] for name in names_ or found], default_flow_style=None, width=1000)
