"""Entries of the corpus: a document, and whether it is rejected (at a field) or harmless (with the reason)."""

from dataclasses import dataclass
from typing import Any

from tests.hostile.seeds import resource

Document = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """A hostile document.

    Attributes:
        refused: The field that is named; empty for one that is harmless.
        harmless: Why it may be accepted; empty for one that is refused.
        says: Words of the message, or of the memory plan where it is harmless.
        model: What the status says of the model.
    """

    document: Document
    refused: str = ""
    harmless: str = ""
    says: str = ""
    model: Any = None


def spec_of(path: str, value: Any) -> Document:
    """The least spec, with this value in one place: `decode.args.a` or `model.lora`."""
    spec: Document = {"model": {"source": {"path": "/models/a"}}}
    *parents, last = path.split(".")
    holder = spec
    for parent in parents:
        holder = holder.setdefault(parent, {})
    holder[last] = value
    return spec


def refused(path: str, value: Any, field: str = "", says: str = "") -> Entry:
    """A resource with this value within its spec, refused at that field or at another one; `*`: as a whole."""
    return Entry(resource(spec_of(path, value)), refused="spec" if field == "*" else f"spec.{field or path}", says=says)


def harmless(path: str, value: Any, why: str) -> Entry:
    """One that is accepted, because it does no harm."""
    return Entry(resource(spec_of(path, value)), harmless=why)


def batch(path: str, value: Any) -> Document:
    """The least PDBatch, with this value in one place."""
    spec: Document = {
        "inferenceRef": {"name": "llama"},
        "input": {"configMap": {"name": "prompts", "key": "in.jsonl"}},
        "output": {"persistentVolumeClaim": {"claimName": "results"}},
    }
    *parents, last = path.split(".")
    holder = spec
    for parent in parents:
        holder = holder.setdefault(parent, {})
    holder[last] = value
    return resource(spec, kind="PDBatch")


def refused_batch(path: str, value: Any, field: str = "") -> Entry:
    """A PDBatch with this value within its spec, refused."""
    return Entry(batch(path, value), refused=f"spec.{field or path}")
