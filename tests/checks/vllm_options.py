"""Prints vLLM's options for `pdinference/checks/vllm-options/`: `python -m tests.checks.vllm_options`."""

import argparse
from typing import Any

_NUMBERS = {int: "int", float: "float"}


def option_list(version: str, parser: Any) -> str:
    """The version, then each long option with the form of its value, also those that vLLM's help does not show."""
    actions: dict[str, argparse.Action] = parser._option_string_actions
    long = {name[2:]: (name, action) for name, action in actions.items() if name.startswith("--")}
    lines = sorted(
        f"{option} {'flag' if _negative(name, action) else _form(action)}"
        for option, (name, action) in long.items()
        if not isinstance(action, argparse._HelpAction)
    )
    return "\n".join([version, *lines]) + "\n"


def _negative(option: str, action: argparse.Action) -> bool:
    """Whether an option turns a switch off."""
    known: set[str] = getattr(action, "negative_option_strings", set())  # vLLM 0.33
    return option in known or (isinstance(action, argparse.BooleanOptionalAction) and option.startswith("--no-"))


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
    return next((form for type_, form in _NUMBERS.items() if action.type is type_), _converted_form(action.type))


def _converted_form(convert: Any) -> str:
    """The form of a value that vLLM converts by a function, found by what the function takes."""

    def takes(text: str) -> bool:
        try:
            convert(text)
        except (ValueError, TypeError, argparse.ArgumentTypeError):  # what argparse reports as an invalid value
            return False
        return True

    if convert in {None, str} or takes("word"):
        return "text"
    if takes("{}"):
        return "json" if takes("[]") else "object"
    if takes("auto"):
        return "text"
    return "count" if takes("1k") else "float" if takes("1.5") else "int" if takes("1") else "text"


def main() -> None:
    """Print the list."""
    from vllm import __version__ as version  # noqa: PLC0415

    from tests.engine.vllm_parser import parser  # noqa: PLC0415

    print(option_list(version, parser()), end="")  # noqa: T201


if __name__ == "__main__":
    main()
