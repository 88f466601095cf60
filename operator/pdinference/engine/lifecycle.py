"""Time limits for the start and termination of pods, in seconds.

Termination: the pod becomes `Terminating`, and the router observes this by its watch. `preStop` keeps the server up
until clients have reacted. After SIGTERM, vLLM completes its requests (`--shutdown-timeout`). Then the kubelet sends
SIGKILL.

Tests: tests/manifests/test_render.py
"""

PRE_STOP_SECONDS = 10
"""Duration of `preStop`: time until the router and kube-proxy have observed the termination of a pod.

It suffices for D, too: the router selects D when P has computed the prompt (router/dispatch.py)."""
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


def grace_seconds(drain_seconds: int) -> int:
    """`terminationGracePeriodSeconds` of a pod that may take `drain_seconds` to complete its requests."""
    return PRE_STOP_SECONDS + drain_seconds + _KILL_MARGIN_SECONDS
