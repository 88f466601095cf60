"""The page of Events, from the table that the operator's code is tested against."""

from typing import Final, get_args

from e2e.reference.event_reasons import OF_INFERENCE
from e2e.reference.markdown import code, page, table
from pdinference.api.v1alpha1.batch import BatchPhase

_PHASES: Final = ", ".join(code(phase) for phase in get_args(BatchPhase))

_OTHERS: Final = (
    "Reasons of [`ModelReady`](conditions.md#modelready) and of a roll-out that is stuck "
    "([`Progressing`](conditions.md#progressing)) are Events, too: Normal for a download that has begun or is done, "
    "else Warning. Their note is the message of the condition."
)


def event_page() -> str:
    """Every Event."""
    introduction = (
        "`kubectl describe pdi NAME` prints the Events of a resource. They report changes; "
        "[conditions](conditions.md) report what is. An Event that comes again within 10 minutes is counted and not "
        "written again, and a resource gets at most 20 in a row, then one every 30 seconds."
    )
    rows = [(code(row.reason), row.type, row.when) for row in OF_INFERENCE]
    return page(
        "Events",
        introduction,
        [
            "## Of a PDInference",
            table(("reason", "type", "when"), rows),
            _OTHERS,
            "## Of a PDBatch",
            f"The reason is the phase that the batch has entered: {_PHASES}. `Failed` is a Warning.",
        ],
    )
