"""Checks variables that name a mirror or a proxy of a hub, to which vLLM would send the hub token."""

import re

from pdinference.api.installation_policy import Policy, matches

_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})
_HUBS = ("HF_", "HUGGINGFACE_", "HUGGING_FACE_", "MODELSCOPE_", "XET_")
_ADDRESSES = ("ENDPOINT", "DOMAIN", "URL", "HOST", "MIRROR")
# Strict, so that every client parses the same host: no user, no backslash, no unusual characters.
_URL = re.compile(
    r"(?:([a-z][a-z0-9]{1,9})://)?([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)(:[0-9]{1,5})?(/[A-Za-z0-9._/-]*)?"
)


def is_about_hub(name: str) -> bool:
    """Whether a variable sets the address of a hub or a proxy."""
    upper = name.upper()
    return upper in _PROXIES or (upper.startswith(_HUBS) and any(word in upper for word in _ADDRESSES))


def leads_elsewhere(name: str, value: str, policy: Policy) -> str:
    """The problem of a variable with a host that the policy does not allow; empty if there is none."""
    if not value or not is_about_hub(name):
        return ""
    address = _URL.fullmatch(value)
    if address is None:
        return "Write a URL without user and password, for example https://huggingface.co."
    host = address[2].lower()
    scheme = address[1] or "https"
    proxy = name.upper() in _PROXIES  # traffic through a proxy is encrypted even if the proxy uses HTTP
    if _reachable(host, "https" if proxy else scheme, policy):
        return ""
    there = host if proxy or scheme == "https" else f"{scheme}://{host}"
    return (
        f"vLLM would send the token of tokenSecret to {there}, which the installation policy does not allow (allowed: "
        f"{', '.join(policy.hub_hosts) or 'none'}). Remove tokenSecret, or ask the administrator to add the host to "
        "the chart value policy.hubHosts."
    )


def is_hub(host: str, policy: Policy) -> bool:
    """Whether the policy allows sending a token to this host."""
    return _reachable(host.lower().rstrip("."), "https", policy)


def _reachable(host: str, scheme: str, policy: Policy) -> bool:
    return any(
        matches(pattern, f"{scheme}://{host}") or (scheme == "https" and matches(pattern.removeprefix("http://"), host))
        for pattern in policy.hub_hosts
    )
