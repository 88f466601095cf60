"""Whether KEDA stands in for the operator's own metrics, for resources that leave that open."""


def stands_in(*, served: bool | None, already: bool) -> bool:
    """Whether to use what stands in.

    Args:
        served: Whether HPAs of this cluster get the operator's metrics; None when that is not known, as before
            the first look, or while nobody has the API group, which is between two installations.
        already: Whether it does now; what is unknown changes nothing.
    """
    return already if served is None else not served
