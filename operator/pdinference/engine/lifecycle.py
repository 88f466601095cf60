"""How long pods may take to start and to stop, in seconds.

Stopping goes in this order: the pod turns `terminating`, which the router sees at once; `preStop` keeps the server up
while that news travels; SIGTERM makes vLLM finish what it has (`--shutdown-timeout`); only then the kubelet kills.
"""

from pdinference.api.names import Role

PRE_STOP_SECONDS = 10
"""Time for the router and for kube-proxy to learn that a pod leaves."""
_PREFILL_SHARE = 4
_KILL_MARGIN_SECONDS = 20
"""Time between vLLM's own deadline and the kubelet's, for the process to end."""

PROBE_PERIOD_SECONDS = 5
LIVENESS_PERIOD_SECONDS = 10
LIVENESS_FAILURES = 10
"""A busy engine may answer /health late; restarting one that works costs far more than finding a dead one late."""
READINESS_FAILURES = 3
PROBE_TIMEOUT_SECONDS = 5

ROUTER_DRAIN_SECONDS = 300
"""The longest answer that a router that is being replaced may finish streaming."""


def pre_stop_seconds(role: Role, drain_seconds: int) -> int:
    """How long a pod that is to stop takes requests as if nothing were.

    The router chooses P and D of a request at once (vllm-router 0.1.17), so a D pod that leaves may yet get requests
    that wait in P: it stays for a quarter of the time that requests may take.
    """
    return max(PRE_STOP_SECONDS, drain_seconds // _PREFILL_SHARE) if role is Role.DECODE else PRE_STOP_SECONDS


def grace_seconds(drain_seconds: int, pre_stop: int = PRE_STOP_SECONDS) -> int:
    """`terminationGracePeriodSeconds` of a pod that may take `drain_seconds` to finish its requests."""
    return pre_stop + drain_seconds + _KILL_MARGIN_SECONDS
