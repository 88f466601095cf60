"""The command `pdinference completion`.

Tests: tests/cli/test_kubectl.py
"""

import click
from click.shell_completion import get_completion_class

_PROGRAM = "pdinference"
_VARIABLE = "_PDINFERENCE_COMPLETE"
"""The variable that click reads for a program of this name."""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print a script that completes the command `pdinference` in a shell.

    For bash and zsh, add `source <(pdinference completion bash)` (or zsh) to ~/.bashrc (or ~/.zshrc). For fish, write
    the output to ~/.config/fish/completions/pdinference.fish. `kubectl pdi` needs no script but that of kubectl.
    """
    kind = get_completion_class(shell)
    if kind is None:  # click has all of the choices
        raise click.ClickException(f"click cannot complete in {shell}.")
    click.echo(kind(context.find_root().command, {}, _PROGRAM, _VARIABLE).source())
