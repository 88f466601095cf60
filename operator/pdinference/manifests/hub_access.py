"""Where the token of a hub may go: variables that name a mirror or a proxy are checked against the policy."""

import re

from pdinference.api.installation_policy import Policy, matches

_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"})
_HUBS = ("HF_", "HUGGINGFACE_", "HUGGING_FACE_", "MODELSCOPE_", "XET_")
_ADDRESSES = ("ENDPOINT", "DOMAIN", "URL", "HOST", "MIRROR")
# Strict, so that no client reads another host out of it than this: no user, no backslash, no odd characters.
_URL = re.compile(
    r"(?:([a-z][a-z0-9]{1,9})://)?([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)(:[0-9]{1,5})?(/[A-Za-z0-9._/-]*)?"
)


def is_about_hub(name: str) -> bool:
    """Whether a variable says where a hub is, or by which way it is reached."""
    upper = name.upper()
    return upper in _PROXIES or (upper.startswith(_HUBS) and any(word in upper for word in _ADDRESSES))


def leads_elsewhere(name: str, value: str, policy: Policy) -> str:
    """What is wrong with a variable that leads to a host that the policy does not allow; empty where it does."""
    if not value or not is_about_hub(name):
        return ""
    address = _URL.fullmatch(value)
    if address is None:
        return "Write an address without user and password, for example https://huggingface.co."
    host = address[2].lower()
    scheme = address[1] or "https"
    proxy = name.upper() in _PROXIES  # what goes through is encrypted, however the proxy itself is reached
    if _reachable(host, "https" if proxy else scheme, policy):
        return ""
    there = host if proxy or scheme == "https" else f"{scheme}://{host}"
    return (
        f"The token of tokenSecret would go to {there}, which the operator is not installed to allow (allowed: "
        f"{', '.join(policy.hub_hosts) or 'none'}). Leave out the token, or ask who installed it to add the host to "
        "the chart's policy.hubHosts."
    )


def is_hub(host: str, policy: Policy) -> bool:
    """Whether a token may go to this host."""
    return _reachable(host.lower().rstrip("."), "https", policy)


def _reachable(host: str, scheme: str, policy: Policy) -> bool:
    return any(
        matches(pattern, f"{scheme}://{host}") or (scheme == "https" and matches(pattern.removeprefix("http://"), host))
        for pattern in policy.hub_hosts
    )
