"""Checks of the host paths in a resource against the installation policy.

Tests: tests/manifests/test_policy.py
"""

from collections.abc import Iterator

from pdinference.api import names
from pdinference.api.installation_policy import AllowedHostPath, Policy
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import Problem

_OF_CODE = "spec.engine.compileCache.hostPath.path"


def host_path_problems(resource: PDInference, policy: Policy) -> Iterator[Problem]:
    """Host paths that the installation policy does not allow."""
    namespace = resource.metadata.namespace
    for field, path, writes in _named(resource):
        entries = [entry for entry in policy.allowed_host_paths if entry.covers(path, namespace)]
        if not entries:
            yield Problem(
                field,
                f"The installation policy does not allow the host path {path} (allowed: {_shown(policy, namespace)}). "
                "Use an allowed path, or ask the administrator to add it to the chart value allowedHostPaths.",
            )
        elif writes and all(entry.read_only for entry in entries):
            yield Problem(
                field,
                f"Pods need to write to {path}, but the installation policy allows it read-only. Ask the administrator "
                "to add exactly this folder to the chart value allowedHostPaths with readOnly: false.",
            )
        elif field == _OF_CODE and path in {other for _, other, _ in _of_models(resource)}:
            yield Problem(field, "This folder holds models, which engines must not change. Use another folder.")
        elif field == _OF_CODE and all(entry.namespaces != [namespace] for entry in entries):
            yield Problem(
                field,
                f"Engines run the code in {path}, so other namespaces must not write to it. Ask the administrator to "
                f"allow this folder with namespaces: [{namespace}] in the chart value allowedHostPaths.",
            )


def _named(resource: PDInference) -> Iterator[tuple[str, str, bool]]:
    """Field and path of each host path, and whether pods write to it."""
    yield from _of_models(resource)
    compiled = resource.spec.engine.compile_cache
    if compiled is not None and compiled.host_path is not None:
        yield _OF_CODE, compiled.host_path.path, True
    for role in names.ENGINE_ROLES:
        tiers = resource.spec.of(role).kv_tiers
        if tiers and tiers.disk and tiers.disk.host_path:
            yield f"spec.{role}.kvTiers.disk.hostPath", tiers.disk.host_path, True


def _of_models(resource: PDInference) -> Iterator[tuple[str, str, bool]]:
    model = resource.spec.model
    if (source := model.source.host_path) is not None:
        yield "spec.model.source.hostPath.path", source.path, False
    if model.cache is not None and (folder := model.cache.host_path) is not None:
        yield "spec.model.cache.hostPath.path", folder.path, True


def _shown(policy: Policy, namespace: str) -> str:
    """The folders that this namespace may mount. Folders of other namespaces are not disclosed."""
    known = [_described(e) for e in policy.allowed_host_paths if not e.namespaces or namespace in e.namespaces]
    return ", ".join(known) or "none"


def _described(entry: AllowedHostPath) -> str:
    return f"{entry.path} and below, read-only" if entry.read_only else f"{entry.path} itself"
