"""Options of vLLM that resources do not support, each with the reason and an alternative.

Tests: tests/conversion/test_every_option.py
"""

from pdinference.api.v1alpha1.engine import OWNED_ARGUMENTS
from pdinference.checks.removed_options import NO_RAY
from pdinference.engine.refused import REFUSED_ARGUMENTS

_OWN_REASONS = {
    "distributed-executor-backend": NO_RAY,
    "download-dir": "Each pod has its own cache. spec.model.cache stores the model on a claim or on each node.",
    "config": "This file is not read here. Give its options on the command line, or write them into spec.engine.args.",
    "host": "Pods listen on every address, and a NetworkPolicy limits who reaches them.",
}


def reason_to_leave_out(name: str) -> str | None:
    """Why resources do not support an option of vLLM; None if they do."""
    if name in _OWN_REASONS:
        return _OWN_REASONS[name]
    if why := REFUSED_ARGUMENTS.get(name.removeprefix("no-")):
        return as_sentence(why)
    why = OWNED_ARGUMENTS.get(name.removeprefix("no-"))
    return as_sentence(why) if why else None


def as_sentence(clause: str) -> str:
    """A reason of the admission checks, which is a clause, as a sentence."""
    return f"{clause[0].upper()}{clause[1:]}."
