"""The user's kubeconfig: which context applies, and what is wrong with a file that cannot be used."""

import os
from pathlib import Path
from typing import Any

from kubernetes.aio.config import ConfigException
from kubernetes.aio.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION, KubeConfigMerger
from yaml import YAMLError

from pdinference.api.plain_text import plain

Json = dict[str, Any]

_MOST_NAMES = 10
_LONGEST = 300
_NOT_A_KUBECONFIG = (YAMLError, UnicodeDecodeError, TypeError, AttributeError, KeyError)
"""What the client raises for a file of another kind; it does not check the file's structure."""
UNREADABLE = (ConfigException, OSError, *_NOT_A_KUBECONFIG)
"""What the client raises for a kubeconfig that it cannot use."""


class ConfigurationError(Exception):
    """The connection to the API server cannot be configured. The message has the remedy."""


def chosen_context(kubeconfig: Path | None, context: str | None) -> Json:
    """The context that kubectl would use.

    Args:
        kubeconfig: A kubeconfig file. Default: the files of $KUBECONFIG, else ~/.kube/config.
        context: Name of the context. Default: the current one.

    Raises:
        ConfigurationError: There is no kubeconfig, it cannot be read, or it lacks the context.
    """
    place = _place(kubeconfig)
    if not any(Path(part).expanduser().exists() for part in place.split(os.pathsep) if part):
        raise ConfigurationError(f"There is no kubeconfig {place}. Set KUBECONFIG, or pass --kubeconfig.")
    try:
        found = KubeConfigMerger(place).config.value  # type: ignore[no-untyped-call]
        contexts = {one["name"]: one.value["context"] or {} for one in found["contexts"]}
        current = found.get("current-context")
    except UNREADABLE as error:
        raise unusable(error, kubeconfig) from error
    if (name := context or current) in contexts:
        return dict(contexts[name])
    known = ", ".join([*list(contexts)[:_MOST_NAMES], *(["..."] if len(contexts) > _MOST_NAMES else [])])
    missing = f"has no context {name}" if name else "has no current-context"
    choose = f"Pass --context with one of: {known}." if known else "Pass another file with --kubeconfig."
    raise ConfigurationError(f"The kubeconfig {place} {missing}. {choose}")


def unusable(error: Exception, kubeconfig: Path | None) -> ConfigurationError:
    """The message for an error of the client."""
    place, remedy = _place(kubeconfig), "Correct it, or pass another one: --kubeconfig."
    if isinstance(error, _NOT_A_KUBECONFIG):
        detail = f" ({_in_a_line(error)})" if isinstance(error, YAMLError) else ""
        return ConfigurationError(f"{place} is not a kubeconfig{detail}. {remedy}")
    return ConfigurationError(f"The kubeconfig {place} cannot be used: {_in_a_line(error)}. {remedy}")


def _in_a_line(error: Exception) -> str:
    return plain(" ".join(str(error).split()), _LONGEST)


def _place(kubeconfig: Path | None) -> str:
    return str(kubeconfig or KUBE_CONFIG_DEFAULT_LOCATION)
