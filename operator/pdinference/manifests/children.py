"""Common parts of all children of a resource.

Tests: tests/manifests/test_render.py
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1 import PDInference
from pdinference.engine.command import Command
from pdinference.manifests.templates import Manifest, fill

# Letters only, because YAML parsers would read a revision such as 04229333 as a number. No vowels, to avoid words.
_AS_CONSONANTS = str.maketrans("0123456789abcdef", "bcdfghjklmnpqrst")


def child(resource: PDInference, role: Role, template: str, **values: Any) -> Manifest:
    """Fill in the template of a child, and add the common metadata."""
    name = resource.metadata.name
    manifest = fill(
        template,
        **{
            "object": names.role_object(name, role),
            "namespace": resource.metadata.namespace,
            "selector": names.role_selector(name, role),
            "labels": names.role_labels(name, role),
            **values,
        },
    )
    manifest["metadata"] |= {
        "namespace": resource.metadata.namespace,
        "labels": names.role_labels(name, role) | manifest["metadata"].get("labels", {}),
        "ownerReferences": [owner_reference(resource.kind, name, resource.metadata.uid)],
    }
    return manifest


def identity(resource: PDInference, role: Role, **values: Any) -> tuple[Manifest, ...]:
    """A service account with its Role and RoleBinding. Each role has its own template of the Role."""
    return tuple(
        child(resource, role, template, **values) for template in ("serviceaccount", f"{role}-role", "rolebinding")
    )


def owner_reference(kind: str, name: str, uid: str) -> dict[str, Any]:
    """The owner reference of a child."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def fingerprint(content: Mapping[str, Any]) -> str:
    """A short hash of content."""
    text = json.dumps(content, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[: names.REVISION_LENGTH]
    return digest.translate(_AS_CONSONANTS)


def command_values(command: Command) -> dict[str, Any]:
    """Values of a command for templates."""
    return {
        "program": list(command.program),
        "arguments": list(command.arguments),
        "environment": list(command.environment),
        "scripts": list(command.scripts),
    }
