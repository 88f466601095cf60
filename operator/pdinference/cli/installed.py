"""The settings of the operator that serves a namespace: the options and the policy of its Deployment.

Tests: tests/charts/test_installed.py
"""

from dataclasses import dataclass
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from pdinference.api.plain_text import plain
from pdinference.cli.installation import installation
from pdinference.cli.listing import ObjectListing, listing
from pdinference.cluster.client import ApiServer, Json
from pdinference.cluster.errors import ApiError
from pdinference.manifests import RenderSettings

_SELECTOR: Final = "app.kubernetes.io/part-of=pdinference,app.kubernetes.io/component=operator"
_VERSION: Final = "app.kubernetes.io/version"
_POLICY: Final = "policy"
_POLICY_KEY: Final = "policy.yaml"
_OTHERS: Final = "The operator has other settings. Give its own as options, as docs/operations.md shows."


@dataclass(frozen=True, slots=True)
class Installed:
    """Settings for a command, and how far to trust them.

    Attributes:
        settings: The settings.
        source: Where they come from, a sentence.
        differences: Why the operator's objects may differ from those that the settings give, and what to do.
    """

    settings: RenderSettings
    source: str
    differences: str


class _UnknownError(Exception):
    """The settings cannot be read; the message is a sentence that says why."""


def stated(settings: RenderSettings) -> Installed:
    """The settings of a command's options."""
    return Installed(
        settings,
        "They are those of the options (--router-image, --policy, --model-image, ...).",
        _OTHERS,
    )


async def installed(
    api: ApiServer, namespace: str, settings: RenderSettings, deployments: ObjectListing | None = None
) -> Installed:
    """The settings of the operator that serves a namespace.

    Options take precedence. Without any, the operator's Deployment is read, where the user may. Else the defaults hold.

    Args:
        api: The API server.
        namespace: The namespace.
        settings: Settings of the command's options.
        deployments: The operator's Deployments, if they were listed already.

    Raises:
        ApiError: The API server does not answer.
    """
    if settings != RenderSettings():
        return stated(settings)
    try:
        return await _deployed(api, namespace, await operators(api) if deployments is None else deployments)
    except _UnknownError as error:
        return Installed(settings, f"They are the defaults. {error}", _OTHERS)


async def operators(api: ApiServer) -> ObjectListing:
    """The operator's Deployments in all namespaces."""
    return await listing(api, "/apis/apps/v1/deployments", labelSelector=_SELECTOR)


def version_of(deployment: Json) -> str:
    """The version of the operator with which its Deployment is labelled."""
    return plain((deployment["metadata"].get("labels") or {}).get(_VERSION, "unknown"), 63)


async def _deployed(api: ApiServer, namespace: str, found: ObjectListing) -> Installed:
    if found.unreadable:
        raise _UnknownError(found.unreadable)
    serving = [item for item in found.items if _serves(item, namespace)]
    if len(serving) != 1:
        count = f"{len(serving)} Deployments of operators serve" if serving else "No operator's Deployment serves"
        raise _UnknownError(f"{count} the namespace {namespace}.")
    (item,) = serving
    where = f"{item['metadata']['namespace']}/{item['metadata']['name']}"
    return Installed(
        _read(_arguments(item), await _policy(api, item), where),
        f"They are those of the Deployment {where}.",
        f"The Deployment is labelled with version {version_of(item)}, "
        f"and this program is version {version('pdinference')}.",
    )


def _serves(item: Json, namespace: str) -> bool:
    """Whether an operator serves a namespace: without --namespace it serves all."""
    only = [word.partition("=")[2] for word in _arguments(item) if word.startswith("--namespace=")]
    return not only or namespace in only


def _arguments(item: Json) -> list[str]:
    (container, *_) = item["spec"]["template"]["spec"]["containers"]
    return list(container.get("args") or ())


async def _policy(api: ApiServer, item: Json) -> str | None:
    """The installation policy; None if the Deployment mounts none."""
    volumes = item["spec"]["template"]["spec"].get("volumes") or ()
    names = [volume["configMap"]["name"] for volume in volumes if volume["name"] == _POLICY and "configMap" in volume]
    if not names:
        return None
    path = f"/api/v1/namespaces/{item['metadata']['namespace']}/configmaps/{names[0]}"
    try:
        data = (await api.get(path)).get("data") or {}
    except ApiError as error:
        if error.status not in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
            raise
        raise _UnknownError(f"The operator's policy cannot be read: {plain(error.message, 300)}") from None
    return str(data.get(_POLICY_KEY, ""))


@click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@installation
def _settings(settings: RenderSettings) -> RenderSettings:
    """The options of `pdinference run` that are settings of the installation."""
    return settings


def _read(arguments: list[str], policy: str | None, where: str) -> RenderSettings:
    with TemporaryDirectory() as folder:
        if policy is not None:  # of two equal options, the last one counts
            file = Path(folder, _POLICY_KEY)
            file.write_text(policy, encoding="utf-8")
            arguments = [*arguments, f"--policy={file}"]
        try:
            found: RenderSettings = _settings.main(arguments, standalone_mode=False)
        except click.ClickException as error:
            reason = plain(error.format_message(), 300)
            raise _UnknownError(f"The options of the Deployment {where} cannot be read: {reason}") from None
    return found
