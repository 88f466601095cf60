"""The required action for a child, from its record. Pure: the plan uses it.

Tests: tests/cluster/test_apply.py
"""

import json
from enum import StrEnum
from typing import Any, Literal

from pdinference.cluster.drift import contains
from pdinference.cluster.kinds import Owner
from pdinference.cluster.state.records import ChildRecord, comparable


class Verdict(StrEnum):
    """The required action for a child."""

    LEAVE = "leave"
    """The child is in order."""
    CREATE = "create"
    """The child is not in the cache."""
    APPLY = "apply"
    """The manifest has changed."""
    VERIFY = "verify"
    """The live object has changed and must be compared with the manifest."""
    SCALE = "scale"
    """Only the replica count differs."""
    WAIT = "wait"
    """Another object with this name is being deleted."""
    FOREIGN = "foreign"
    """An object with this name belongs to another owner."""

    @property
    def needs_manifest(self) -> bool:
        """Whether the action needs the rendered child."""
        return self not in {Verdict.LEAVE, Verdict.SCALE}


def judge(record: ChildRecord | None, owner: Owner, uid: str, fingerprint: str, replicas: int | None = None) -> Verdict:
    """The required action for a child.

    Args:
        record: Record of the live object with its name; None if there is none.
        owner: The resource that owns the child.
        uid: The resource's uid.
        fingerprint: Hash of the manifest.
        replicas: Replica count; None if the operator does not set it.
    """
    if record is None:
        return Verdict.CREATE
    if (
        taken := judge_owner(record.owner, record.owner_uid, deleting=record.deleting, owner=owner, uid=uid)
    ) is not None:
        return taken
    if record.applied_hash != fingerprint:
        return Verdict.APPLY
    if record.digest != record.settled:
        return Verdict.VERIFY
    return Verdict.LEAVE if has_replicas(record, replicas) else Verdict.SCALE


def judge_owner(
    found: Owner | None, found_uid: str, *, deleting: bool, owner: Owner, uid: str
) -> Literal[Verdict.WAIT, Verdict.FOREIGN] | None:
    """Why an object with the name of a child may not be written; None if the resource owns it.

    Args:
        found: The owner in the object's owner reference.
        found_uid: The uid of that owner.
        deleting: Whether the object is being deleted.
        owner: The resource that owns the child.
        uid: The resource's uid.
    """
    if found_uid == uid and not deleting:
        return None
    return Verdict.WAIT if deleting or found == owner else Verdict.FOREIGN


def has_replicas(record: ChildRecord, replicas: int | None) -> bool:
    """Whether the live replica count equals the desired one."""
    return replicas is None or record.workload is None or record.workload.desired == replicas


def is_in_order(record: ChildRecord, manifest: dict[str, Any]) -> bool:
    """Whether the live object contains its manifest; also False if its content is not kept."""
    return record.content is not None and contains(json.loads(record.content), comparable(record.key.kind, manifest))
