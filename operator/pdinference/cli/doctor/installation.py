"""Checks of the operator's installation, and of Kubernetes.

Tests: tests/integration/test_doctor.py, tests/cli/test_doctor.py
"""

import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import Final

from pdinference.api import names
from pdinference.api.plain_text import first_of, plain
from pdinference.cli.doctor.facts import ClusterFacts, Subject
from pdinference.cli.doctor.finding import Finding, ok, problem, unknown
from pdinference.cli.doctor.reading import DEVICE_API
from pdinference.cli.installed import version_of
from pdinference.cluster.client import Json

_OWN_VERSION: Final = version("pdinference")
_MOST_FIELDS: Final = 8
_KINDS: Final = (names.PLURAL, names.BATCH_PLURAL, names.SCALER_PLURAL)
_OLDEST: Final = (1, 30)
_WITH_DEVICES: Final = (1, 34)
_MINOR: Final = re.compile(r"^v?([0-9]{1,3})\.([0-9]{1,3})")


def installation(facts: ClusterFacts, subject: Subject | None) -> Iterator[Finding]:
    """All checks of this module."""
    yield _crds(facts)
    yield _operator(facts)
    yield _webhook(facts)
    if subject is not None and subject.status is not None:
        yield _handled(subject.status.observed_generation, subject.generation)
    yield from _kubernetes(facts, subject)


def _crds(facts: ClusterFacts) -> Finding:
    if missing := [kind for kind in _KINDS if kind not in facts.kinds]:
        remedy = "Install the chart charts/pdinference-operator, or apply `pdinference crd`."
        return problem("CRDs", f"The API server does not serve {', '.join(missing)} of {names.GROUP}.", remedy)
    if facts.dropped_fields is None:
        return unknown("CRDs", "The API server does not say which fields its CRDs have.")
    if dropped := facts.dropped_fields:
        return _older_crds(facts, dropped)
    return ok("CRDs", f"The API server serves {names.API_VERSION}: {', '.join(_KINDS)}.")


def _older_crds(facts: ClusterFacts, dropped: tuple[str, ...]) -> Finding:
    """What follows from CRDs that lack fields of this program: a problem if the operator has its version."""
    found = (
        f"The installed CRDs are older than this program, version {_OWN_VERSION}. The API server drops "
        f"{first_of(dropped, _MOST_FIELDS)}."
    )
    if _OWN_VERSION not in map(version_of, facts.operators.items):
        return unknown("CRDs", found, "If you upgrade the operator, upgrade its CRDs, too.")
    return problem("CRDs", found, "Apply `pdinference crd`. The chart does, unless `crds.install=false`.")


def _operator(facts: ClusterFacts) -> Finding:
    if facts.operators.unreadable:
        return unknown("operator", facts.operators.unreadable)
    if not facts.operators.items:
        return problem("operator", "No Deployment of the operator was found.", "Install the chart.")
    described = ", ".join(map(_deployment, facts.operators.items))
    if not any((item.get("status") or {}).get("readyReplicas") for item in facts.operators.items):
        remedy = "`kubectl describe deployment` and the logs of its pods have the reason."
        return problem("operator", f"No pod of it is ready: {described}.", remedy)
    return ok("operator", f"{described}.")


def _deployment(item: Json) -> str:
    metadata = item["metadata"]
    return f"{metadata['namespace']}/{metadata['name']} version {version_of(item)}"


def _webhook(facts: ClusterFacts) -> Finding:
    if facts.webhooks.unreadable:
        return unknown("webhook", facts.webhooks.unreadable)
    for item in facts.webhooks.items:
        rules = [rule for hook in item.get("webhooks") or () for rule in hook.get("rules") or ()]
        if any(names.GROUP in (rule.get("apiGroups") or ()) for rule in rules):
            return ok("webhook", f"ValidatingWebhookConfiguration {item['metadata']['name']} checks resources.")
    return problem(
        "webhook",
        f"No ValidatingWebhookConfiguration is for {names.GROUP}, so only conditions report invalid resources.",
        "Install the chart with `webhook.enabled=true`.",
    )


def _handled(handled: int, generation: int) -> Finding:
    if handled < generation:
        return problem(
            "reconcile",
            f"The operator has handled generation {handled} of {generation}.",
            "If this stays, look at the operator's logs.",
        )
    return ok("reconcile", f"The operator has handled generation {handled}.")


def _kubernetes(facts: ClusterFacts, subject: Subject | None) -> Iterator[Finding]:
    match = _MINOR.match(facts.version)
    if match is None:
        yield unknown("Kubernetes", f"The API server has the version {plain(facts.version, 63) or 'unknown'}.")
        return
    minor = (int(match[1]), int(match[2]))
    if minor < _OLDEST:
        yield problem("Kubernetes", f"Version {facts.version}.", "Use Kubernetes 1.30 or later.")
    else:
        yield ok("Kubernetes", f"Version {facts.version}.")
    claims = subject is not None and bool(subject.claims)
    served = facts.serves(DEVICE_API, "v1")
    if served:
        yield ok("DRA", f"The API server serves {DEVICE_API}/v1.")
    elif claims:
        hint = "Enable the API group." if minor >= _WITH_DEVICES else "Use Kubernetes 1.34 or later."
        remedy = f"{hint} Or use an extended resource: accelerator.resourceName instead of accelerator.devices."
        yield problem("DRA", f"The API server does not serve {DEVICE_API}/v1, which device claims need.", remedy)
    elif subject is None:
        yield ok("DRA", f"The API server does not serve {DEVICE_API}/v1. Only accelerator.devices needs it.")
