"""Prints vLLM's options for `pdinference/checks/vllm-options.txt`: `python -m tests.checks.vllm_options`."""

import argparse
from collections.abc import Iterator
from typing import Any

_NUMBERS = {int: "int", float: "float"}


def option_list(version: str, parser: Any) -> str:
    """The version, then each long option with the form of its value."""
    lines = sorted({f"{name} {form}" for action in parser._actions for name, form in _options(action)})
    return "\n".join([version, *lines]) + "\n"


def _options(action: argparse.Action) -> Iterator[tuple[str, str]]:
    for option in action.option_strings:
        if option.startswith("--") and not isinstance(action, argparse._HelpAction):
            switch = isinstance(action, argparse.BooleanOptionalAction)
            yield option[2:], "flag" if switch and option.startswith("--no-") else _form(action)


def _form(action: argparse.Action) -> str:
    if isinstance(action, argparse.BooleanOptionalAction):
        return "switch"
    if action.nargs == 0:
        return "flag"
    if action.nargs in {"+", "*"}:
        return "list"
    if action.nargs == "?":
        return "optional"
    if action.choices and action.type in {None, str}:
        return "|".join(map(str, action.choices))
    return next((form for type_, form in _NUMBERS.items() if action.type is type_), "text")


def main() -> None:
    """Print the list."""
    from vllm import __version__ as version  # noqa: PLC0415

    from tests.engine.vllm_parser import parser  # noqa: PLC0415

    print(option_list(version, parser()), end="")  # noqa: T201


if __name__ == "__main__":
    main()
