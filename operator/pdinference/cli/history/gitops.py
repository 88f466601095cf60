"""Detects GitOps tools, which would apply an edit again after an undo in the cluster.

Tests: tests/cli/test_history.py
"""

from collections.abc import Mapping
from typing import Any, Final

_MARKS: Final = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "meta.helm.sh/release-name": "Helm",
}
"""Labels and annotations of GitOps tools on managed objects."""
_MANAGERS: Final = {
    "argocd-controller": "Argo CD",
    "kustomize-controller": "Flux",
    "helm-controller": "Flux",
}
"""Field managers of GitOps tools. Argo CD may track objects by a label that other tools set, too."""


def managed_by(metadata: Mapping[str, Any]) -> str:
    """The GitOps tool that manages a resource; empty if none is detected."""
    marks = (metadata.get("annotations") or {}) | (metadata.get("labels") or {})
    found = [program for mark, program in _MARKS.items() if mark in marks]
    managers = {entry.get("manager") for entry in metadata.get("managedFields") or ()}
    found += [program for manager, program in _MANAGERS.items() if manager in managers]
    return found[0] if found else ""
