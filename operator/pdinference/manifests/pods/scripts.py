"""The volume of a P or D pod with programs of ours (engine/scripts), from a ConfigMap of the pod's revision."""

from collections.abc import Iterable
from typing import Any

from pdinference.api.names import SCRIPTS_VOLUME
from pdinference.engine.command import SCRIPTS_MOUNT, Command, script, script_file

Fields = dict[str, Any]


def scripts_of(commands: Iterable[Command]) -> tuple[str, ...]:
    """Names of the programs that commands need."""
    return tuple(sorted({name for command in commands for name in command.scripts}))


def scripts_volumes(scripts: tuple[str, ...]) -> list[Fields]:
    """The volume, without the name of its ConfigMap, which depends on the revision; empty without programs."""
    return [{"name": SCRIPTS_VOLUME, "configMap": {}}] if scripts else []


def scripts_mount() -> Fields:
    """The mount of this volume. A ConfigMap is read-only in any case; the field says so to readers."""
    return {"name": SCRIPTS_VOLUME, "mountPath": SCRIPTS_MOUNT, "readOnly": True}


def name_scripts(pod: Fields, config_map: str) -> None:
    """Set the ConfigMap of a pod's volume."""
    for volume in pod["spec"]["volumes"]:
        if volume["name"] == SCRIPTS_VOLUME:
            volume["configMap"]["name"] = config_map


def script_files(scripts: Iterable[str]) -> dict[str, str]:
    """The content of the ConfigMap."""
    return {script_file(name): script(name) for name in scripts}
