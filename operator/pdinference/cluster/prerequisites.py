"""Prerequisites of children, from their manifests: the children that must be in order before another one is applied.

A pod has all permissions of its service account. So a workload is applied only when its account and all bindings of the
account belong to the resource. A binding is applied only when its role and its accounts do. Otherwise pods could run
under a foreign account, or a foreign account could get the permissions. Pods whose ResourceClaimTemplate or ConfigMap
was refused, for example because of a CEL expression, would wait for it without end, so their workload waits for it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from pdinference.cluster.kinds import (
    CONFIG_MAP,
    RESOURCE_CLAIM_TEMPLATE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    WORKLOADS,
    ChildKey,
)

Json = Mapping[str, Any]


def prerequisites(manifests: Iterable[tuple[ChildKey, Json]]) -> dict[ChildKey, frozenset[ChildKey]]:
    """The prerequisites of each child. Children without prerequisites are left out."""
    manifests = tuple(manifests)
    found: dict[ChildKey, frozenset[ChildKey]] = {}
    of_account: defaultdict[ChildKey, set[ChildKey]] = defaultdict(set)
    for key, manifest in manifests:
        if key.kind == ROLE_BINDING.name:
            accounts = _bound_accounts(key.namespace, manifest)
            found[key] = frozenset({_role(key.namespace, manifest), *accounts})
            for account in accounts:
                of_account[account] |= {key, *found[key]}
    for key, manifest in manifests:
        if key.kind not in WORKLOADS:
            continue
        needed = _claim_templates(key.namespace, manifest) | _config_maps(key.namespace, manifest)
        if (own := _account(key.namespace, manifest)) is not None:
            needed |= {own, *of_account[own]}
        if needed:
            found[key] = frozenset(needed)
    return found


def _role(namespace: str, binding: Json) -> ChildKey:
    reference = binding.get("roleRef") or {}
    return ChildKey(reference.get("kind", ""), namespace, reference.get("name", ""))


def _bound_accounts(namespace: str, binding: Json) -> set[ChildKey]:
    return {
        ChildKey(SERVICE_ACCOUNT.name, subject.get("namespace", namespace), subject.get("name", ""))
        for subject in binding.get("subjects") or ()
        if subject.get("kind") == SERVICE_ACCOUNT.name
    }


def _account(namespace: str, workload: Json) -> ChildKey | None:
    """The service account of the workload's pods; None for the default account."""
    name = _pod(workload).get("serviceAccountName")
    return ChildKey(SERVICE_ACCOUNT.name, namespace, name) if name else None


def _claim_templates(namespace: str, workload: Json) -> set[ChildKey]:
    """The templates of the pods' claims, those of the user included, which are no children."""
    names = (claim.get("resourceClaimTemplateName") for claim in _pod(workload).get("resourceClaims") or ())
    return {ChildKey(RESOURCE_CLAIM_TEMPLATE.name, namespace, name) for name in names if name}


def _config_maps(namespace: str, workload: Json) -> set[ChildKey]:
    """The ConfigMaps of the pods' volumes, those of the user included, which are no children."""
    sources = (volume.get("configMap") for volume in _pod(workload).get("volumes") or ())
    return {ChildKey(CONFIG_MAP.name, namespace, source["name"]) for source in sources if source and "name" in source}


def _pod(workload: Json) -> Json:
    pod: Json = ((workload.get("spec") or {}).get("template") or {}).get("spec") or {}
    return pod
