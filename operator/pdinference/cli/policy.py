"""The option `--policy`: a file with the installation policy."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pdinference.api.installation_policy import Policy
from pdinference.api.partial import path
from pdinference.api.words import sentence

ResultT = TypeVar("ResultT")


def policy_option(command: Callable[..., ResultT]) -> Callable[..., ResultT]:
    """Add the option. The command gets a `Policy`."""
    return click.option(
        "--policy",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        callback=_read,
        help="YAML file with the installation policy, as in the chart values policy and allowedHostPaths.  "
        "[default: the most restrictive policy]",
    )(command)


def _read(_context: click.Context, _parameter: click.Parameter, file: Path | None) -> Policy:
    if file is None:
        return Policy()
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{file} is not YAML: {error}") from None
    try:
        return Policy.model_validate({} if content is None else content)
    except ValidationError as error:
        lines = (f"  {path(details['loc']) or 'all of it'}: {_words(details)}" for details in error.errors())
        raise click.BadParameter("\n".join([f"{file} is not a valid policy.", *lines])) from None


def _words(details: ErrorDetails) -> str:
    if details["type"] == "extra_forbidden":
        known = ", ".join(str(field.alias) for field in Policy.model_fields.values())
        return f"Unknown field. A policy has {known}."
    return sentence(details)
