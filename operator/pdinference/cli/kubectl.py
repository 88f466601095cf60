"""The plug-in `kubectl pdi`: the command `pdinference` under kubectl's name, and its shell completion.

kubectl runs `kubectl-pdi` for `kubectl pdi`. To complete a line, it runs `kubectl_complete-pdi` with the words after
`pdi`, the last of which is incomplete. It expects a candidate a line, with a description after a tab, and then a colon
and a number: what else the shell may offer (ShellCompDirective of cobra).
"""

import sys
from collections.abc import Iterable
from typing import Final

import click
from click.shell_completion import CompletionItem, ShellComplete

from pdinference.cli.commands import main

PROGRAM: Final = "kubectl pdi"
_VARIABLE: Final = "_KUBECTL_PDI_COMPLETE"
_ONLY_THESE: Final = 4
_FILES_TOO: Final = 0
_OF_FILES: Final = frozenset({"file", "dir"})


def kubectl_pdi() -> None:
    """Entry point of `kubectl-pdi`."""
    main(prog_name=PROGRAM, complete_var=_VARIABLE)


def kubectl_complete_pdi() -> None:
    """Entry point of `kubectl_complete-pdi`."""
    *complete, incomplete = sys.argv[1:] or [""]
    completion = ShellComplete(main, {}, PROGRAM, _VARIABLE)
    for line in _for_cobra(completion.get_completions(complete, incomplete)):
        click.echo(line)


def _for_cobra(candidates: Iterable[CompletionItem]) -> Iterable[str]:
    directive = _ONLY_THESE
    for candidate in candidates:
        if candidate.type in _OF_FILES:
            directive = _FILES_TOO
        else:
            yield f"{candidate.value}\t{candidate.help}" if candidate.help else str(candidate.value)
    yield f":{directive}"
