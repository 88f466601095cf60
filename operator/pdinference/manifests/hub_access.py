"""Checks what could lead the token of a hub elsewhere: variables and mounts of the vLLM container that has it.

Tests: tests/manifests/test_policy.py, tests/manifests/test_pod_rules.py
"""

import posixpath
import re
from collections.abc import Iterable

from pdinference.api.installation_policy import Policy, matches
from pdinference.engine.vllm import CACHE_MOUNT

_HUBS = ("HF_", "HUGGINGFACE_", "HUGGING_FACE_", "MODELSCOPE_", "XET_")
_ADDRESSES = ("ENDPOINT", "DOMAIN", "URL", "HOST", "MIRROR")
# Strict, so that every client parses the same host: no user, no backslash, no unusual characters.
_URL = re.compile(
    r"(?:([a-z][a-z0-9]{1,9})://)?([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)(:[0-9]{1,5})?(/[A-Za-z0-9._/-]*)?"
)
_RESOLVER = "the cluster must resolve the name of the hub; use dnsConfig.options in podTemplate"
_TRUST = "vLLM could trust another host that poses as the hub; put the certificates into the image, with this variable"
_CODE = "code from a volume could run in the process that has the secret; set it in the image"
_RUN_CODE = (
    # Of the dynamic loader, the C library, the shell, CUDA and Python.
    (re.compile("LD_.*|GLIBC_TUNABLES|GCONV_PATH|PATH|HOME|BASH_ENV|ENV|.*_INJECTION64_PATH"), _CODE),
    (re.compile("PYTHON(?!(UNBUFFERED|HASHSEED|FAULTHANDLER|DONTWRITEBYTECODE|UTF8|IOENCODING|MALLOC)$).*"), _CODE),
)
"""Variables that no resource may set beside any Secret of the model's source, with the reason."""
_BESIDE_TOKEN: tuple[tuple[re.Pattern[str], str], ...] = (
    # Of the C library (resolver(5)) and of c-ares.
    (re.compile("LOCALDOMAIN|HOSTALIASES|RES_OPTIONS|RESOLV_.*|CARES_.*|GRPC_DNS_.*"), _RESOLVER),
    # Of OpenSSL, Python, requests, httpx, curl and git. SSLKEYLOGFILE names a file to write the keys of connections to.
    (re.compile("SSL_.*|SSLKEYLOGFILE|OPENSSL_.*|CURL_.*|GIT_.*|PYTHONHTTPSVERIFY"), _TRUST),
    (re.compile("(.*_)?CA_?(BUNDLE|CERTS?|FILE|PATH|INFO)|(HF|HUGGINGFACE|MODELSCOPE|XET)_.*SSL.*"), _TRUST),
    *_RUN_CODE,
)
"""Variables that no resource may set beside a token, with the reason. Without a token, each has legitimate uses."""
_SYSTEM = ("/bin", "/etc", "/lib", "/lib32", "/lib64", "/opt", "/sbin", "/usr", f"{CACHE_MOUNT}/.local")
"""The last one is where Python looks for packages of the user."""


def redirects(name: str) -> str | None:
    """Why a variable may not be set beside a token, whatever its value; None if it may."""
    return _first(_BESIDE_TOKEN, name)


def runs_code(name: str) -> str | None:
    """Why a variable may not be set beside a key for a bucket; None if it may. Requests to a bucket have no secret."""
    return _first(_RUN_CODE, name)


def _first(rules: Iterable[tuple[re.Pattern[str], str]], name: str) -> str | None:
    upper = name.upper()
    return next((why for pattern, why in rules if pattern.fullmatch(upper)), None)


def replaces_system(path: str) -> bool:
    """Whether a mount hides a folder with the image's programs, libraries, certificates or resolver settings."""
    normal = posixpath.normpath(f"/{path.lstrip('/')}")
    return normal == "/" or any(normal == folder or normal.startswith(f"{folder}/") for folder in _SYSTEM)


def is_proxy(name: str) -> bool:
    """Whether a variable names a proxy. NO_PROXY names the hosts that are called without one."""
    upper = name.upper()
    return upper.endswith("_PROXY") and upper != "NO_PROXY"


def is_about_hub(name: str) -> bool:
    """Whether a variable sets the address of a hub or a proxy."""
    upper = name.upper()
    return is_proxy(name) or (upper.startswith(_HUBS) and any(word in upper for word in _ADDRESSES))


def leads_elsewhere(name: str, value: str, policy: Policy) -> str:
    """The problem of a variable with a host that the policy does not allow; empty if there is none."""
    if not value or not is_about_hub(name):
        return ""
    address = _URL.fullmatch(value)
    if address is None:
        return "Write a URL without user and password, for example https://huggingface.co."
    host = address[2].lower()
    scheme = address[1] or "https"
    proxy = is_proxy(name)  # traffic through a proxy is encrypted even if the proxy uses HTTP
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
