"""Names fit the limits of Kubernetes."""

from pdinference.api import names
from pdinference.api.names import Role


def test_the_longest_name_leaves_room_for_the_statefulset_label() -> None:
    workload = names.revision_object("x" * names.NAME_MAX_LENGTH, Role.PARAMETER, "r" * names.REVISION_LENGTH)
    controller_revision_hash = f"{workload}-{'h' * 10}"
    assert len(controller_revision_hash) <= 63
