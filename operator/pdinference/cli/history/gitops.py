"""Programs that write a resource from another source, and so write an edit again that was undone in the cluster."""

from collections.abc import Mapping
from typing import Any, Final

_MARKS: Final = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "meta.helm.sh/release-name": "Helm",
}
"""Labels and annotations that such programs set on what they manage."""
_MANAGERS: Final = {
    "argocd-controller": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
}
"""Field managers, where Argo CD tracks by a label that others set, too."""


def managed_by(metadata: Mapping[str, Any]) -> str:
    """The program that manages a resource; empty for none that is known."""
    marks = (metadata.get("annotations") or {}) | (metadata.get("labels") or {})
    found = [program for mark, program in _MARKS.items() if mark in marks]
    managers = {entry.get("manager") for entry in metadata.get("managedFields") or ()}
    found += [program for manager, program in _MANAGERS.items() if manager in managers]
    return found[0] if found else ""
