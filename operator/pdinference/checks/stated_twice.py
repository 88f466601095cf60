"""Options in `args` that a field of the spec sets, too.

Tests: tests/checks/test_experts.py, tests/checks/test_expert_transport.py, tests/engine/test_traces.py
"""

from collections.abc import Iterable, Iterator

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import Problem
from pdinference.checks.options import arguments_of


def stated_twice(
    spec: Spec, field: str, options: Iterable[str], roles: Iterable[Role] | None = None
) -> Iterator[Problem]:
    """A problem for each of these options in `args`.

    Args:
        spec: The spec.
        field: The field that sets the options.
        options: Names of options.
        roles: Those for which the field holds. Default: all.
    """
    chosen = spec.engine_roles if roles is None else roles
    for path, arguments in arguments_of(spec, chosen):
        for option in sorted(arguments.keys() & set(options)):
            yield Problem(f"{path}.{option}", f"{field} sets this option. Remove one of the two.")
