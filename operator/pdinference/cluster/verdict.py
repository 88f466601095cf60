"""What has to be done about a child, as far as its record says. Pure: a plan is made of this."""

import json
from enum import StrEnum
from typing import Any, Literal

from pdinference.cluster.drift import contains
from pdinference.cluster.kinds import Owner
from pdinference.cluster.state.records import ChildRecord, comparable


class Verdict(StrEnum):
    """What has to be done about a child."""

    LEAVE = "leave"
    """It is known to be in order."""
    CREATE = "create"
    """It does not exist, as far as the cache knows."""
    APPLY = "apply"
    """Its manifest has changed."""
    VERIFY = "verify"
    """The live object has changed; only a comparison with the manifest shows whether that matters."""
    SCALE = "scale"
    """Only its number of replicas differs."""
    WAIT = "wait"
    """An object in its place is going away."""
    FOREIGN = "foreign"
    """An object in its place belongs to somebody else."""

    @property
    def needs_manifest(self) -> bool:
        """Whether the child has to be rendered for this."""
        return self not in {Verdict.LEAVE, Verdict.SCALE}


def judge(record: ChildRecord | None, owner: Owner, uid: str, fingerprint: str, replicas: int | None = None) -> Verdict:
    """What has to be done about a child.

    Args:
        record: The live object in its place; None for none.
        owner: The resource whose child it is to be.
        uid: The resource's uid.
        fingerprint: Of its manifest.
        replicas: How many replicas it should have; None where that is not the operator's to say.
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
    """Why an object in a child's place may not be written; None if it is the resource's own.

    Args:
        found: The owner that the object names.
        found_uid: The uid of that owner.
        deleting: Whether the object is being deleted.
        owner: The resource whose child it is to be.
        uid: The resource's uid.
    """
    if found_uid == uid and not deleting:
        return None
    return Verdict.WAIT if deleting or found == owner else Verdict.FOREIGN


def has_replicas(record: ChildRecord, replicas: int | None) -> bool:
    """Whether the number of replicas is as it should be."""
    return replicas is None or record.workload is None or record.workload.desired == replicas


def is_in_order(record: ChildRecord, manifest: dict[str, Any]) -> bool:
    """Whether the live object is as its manifest says; False as well when its content is not kept."""
    return record.content is not None and contains(json.loads(record.content), comparable(record.key.kind, manifest))
