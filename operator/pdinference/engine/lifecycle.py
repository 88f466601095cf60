"""Time limits for the start and termination of pods, in seconds.

Termination: the pod becomes `Terminating`, and the router observes this by its watch. `preStop` keeps the server up
until clients have reacted. After SIGTERM, vLLM completes its requests (`--shutdown-timeout`). Then the kubelet sends
SIGKILL.
"""

from pdinference.api.names import Role

PRE_STOP_SECONDS = 10
"""Time until the router and kube-proxy have observed the termination of a pod."""
_PREFILL_SHARE = 4
_KILL_MARGIN_SECONDS = 20
"""Time between vLLM's deadline and the kubelet's, for the process to exit."""

PROBE_PERIOD_SECONDS = 5
LIVENESS_PERIOD_SECONDS = 10
LIVENESS_FAILURES = 10
"""A busy engine may respond to /health late. A needless restart costs far more than the late detection of a failure."""
READINESS_FAILURES = 3
PROBE_TIMEOUT_SECONDS = 5

ROUTER_START_SECONDS = 300
"""Maximum time until the router listens. It took over 100 s on a node with ten times as much work as cores."""
ROUTER_PROBE_PERIOD_SECONDS = 2
ROUTER_DRAIN_SECONDS = 300
"""Maximum time that a terminating router may continue to stream a response."""


def pre_stop_seconds(role: Role, drain_seconds: int) -> int:
    """Duration of `preStop`, in which a terminating pod continues to accept requests.

    D has a quarter of the drain time: vllm-router, of earlier releases, selected P and D of a request together, so a
    terminating D pod still got requests that were queued in P. The router needs only `PRE_STOP_SECONDS`. The value
    stays until another change restarts D pods anyway.
    """
    return max(PRE_STOP_SECONDS, drain_seconds // _PREFILL_SHARE) if role is Role.DECODE else PRE_STOP_SECONDS


def grace_seconds(drain_seconds: int, pre_stop: int = PRE_STOP_SECONDS) -> int:
    """`terminationGracePeriodSeconds` of a pod that may take `drain_seconds` to complete its requests."""
    return pre_stop + drain_seconds + _KILL_MARGIN_SECONDS
