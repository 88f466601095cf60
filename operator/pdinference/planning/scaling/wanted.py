"""How many pods a role's own load asks for, as its HPA tells.

The HPA's decision is taken rather than the momentary load, because it is steady: it waits before it takes pods away.
Where bounds of ours hide the decision, as much is taken as is sure.
"""

from pdinference.planning.observed import AutoscalerState, Verdict


def wanted_by(hpa: AutoscalerState, live: int) -> int | None:
    """So many pods; None when the HPA does not know the load.

    Args:
        hpa: The HPA of the role.
        live: Pods that the role has.
    """
    if not hpa.sees or hpa.desired is None:
        return None
    if _limited(hpa.limited, "TooManyReplicas"):
        # Not by its maximum, which may have been raised since it looked.
        return max(hpa.desired + 1, hpa.momentary or 0)
    if _limited(hpa.limited, "TooFewReplicas"):
        if hpa.replicas == live == hpa.minimum:
            # One fewer is sure, and asked for anew when that is reached; if the load grows again, it is not.
            return min(hpa.minimum, max(hpa.minimum - 1, hpa.momentary or 0))
        return min(hpa.minimum, live)  # it has not looked again since the minimum, or the number of pods, changed
    return hpa.desired


def _limited(verdict: Verdict | None, reason: str) -> bool:
    return verdict is not None and verdict.status == "True" and verdict.reason == reason
