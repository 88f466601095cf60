"""The option `--policy`: a file with the installation policy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pdinference.api.installation_policy import Policy
from pdinference.api.partial import path
from pdinference.api.words import sentence
from pdinference.cli.yaml_files import yaml_documents

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
    content = _content(file)
    try:
        return Policy.model_validate({} if content is None else content)
    except ValidationError as error:
        lines = (f"  {path(details['loc']) or 'all of it'}: {_words(details)}" for details in error.errors())
        raise click.BadParameter("\n".join([f"{file} is not a valid policy.", *lines])) from None


def _content(file: Path) -> Any:
    """The only document of a file; None if it is empty."""
    try:
        with file.open(encoding="utf-8") as source:
            documents = list(yaml_documents(source))
    except OSError as error:
        raise click.BadParameter(f"{file} cannot be read: {error.strerror}.") from None
    except click.ClickException as error:
        raise click.BadParameter(error.message) from None
    if len(documents) > 1:
        raise click.BadParameter(f"{file} has {len(documents)} documents. Write one policy.")
    return next(iter(documents), None)


def _words(details: ErrorDetails) -> str:
    if details["type"] == "extra_forbidden":
        known = ", ".join(str(field.alias) for field in Policy.model_fields.values())
        return f"Unknown field. A policy has {known}."
    return sentence(details)
