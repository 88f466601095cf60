"""The page of conditions and their reasons, from the table of conditions."""

from collections.abc import Iterable, Mapping
from typing import Final

from e2e.reference.markdown import code, page, plain, table
from e2e.reference.reasons import OF_BATCHES, OF_SCALERS, REASONS, Reason
from pdinference.api.v1alpha1.conditions import POD_REASONS, TABLE, ConditionType

_OTHERS: Final = (
    "Further reasons of the Job for a model, such as `AccessDenied` and `NoSpace`, are under "
    "[download a model](../models.md#download-a-model). All others are those of the kubelet, of the API server "
    "(`Forbidden`, `Invalid`), of the HorizontalPodAutoscaler or of the Gateway's controller, word for word."
)
_SCALER: Final = (
    "`Limited` is `True` while the allocated count of a role differs from the recommended one (`spec.replicas`), and "
    "`False` with the reason `AsRecommended` else."
)
_BATCH: Final = (
    "`Running`, `Complete` and `Failed` are always present, with the same reason and message. At most one is `True`. "
    "While the Job's pod is not ready, the reason is one [of pods](#reasons-of-pods). If an object cannot be applied, "
    "it is `NameConflict`, `NotServed` or the API server's. A failed Job has a reason of its own, such as "
    "`BackoffLimitExceeded`."
)


def condition_page() -> str:
    """Every condition, and every reason with its remedy."""
    introduction = (
        "`kubectl describe pdi NAME` prints the conditions of a PDInference with their messages. A message names the "
        "pod or field at fault and what to do. [Conditions](../resource.md#conditions-statusconditions) describes how "
        "programs use them."
    )
    pods = ", ".join(code(name) for name in sorted(POD_REASONS))
    return page(
        "Conditions and reasons",
        introduction,
        [
            "## Conditions",
            *map(_condition, TABLE),
            "## Reasons of pods",
            f"Conditions of roles, and those that follow from them, have these for a pod that is not ready: {pods}.",
            "## Reasons",
            _OTHERS,
            _remedies(REASONS),
            "## Conditions of a PDScaler",
            _SCALER,
            _remedies(OF_SCALERS),
            "## Conditions of a PDBatch",
            _BATCH,
            _remedies(OF_BATCHES),
        ],
    )


def known() -> frozenset[str]:
    """Every reason that the table of conditions has."""
    return POD_REASONS.union(*(names for row in TABLE for names in row.reasons.values()))


def _remedies(reasons: Mapping[str, Reason]) -> str:
    rows = ((code(name), reason.meaning, reason.remedy) for name, reason in sorted(reasons.items()))
    return table(("reason", "meaning", "what to do"), rows)


def _condition(row: ConditionType) -> str:
    rows = ((code(status), plain(text), _reasons(row.reasons[status])) for status, text in row.when.items())
    present = f"Present if {row.present}. " if row.present else "Always present. "
    foreign = f" Reasons from {row.foreign} are passed through unchanged." if row.foreign else ""
    healthy = f"Healthy value: `{row.good}`" + (" or absent." if row.present else ".")
    return "\n\n".join(
        [f"### `{row.name}`", f"{present}{healthy}{foreign}", table(("status", "meaning", "reasons"), rows)]
    )


def _reasons(names: Iterable[str]) -> str:
    """The reasons of a status. Those of pods, which many have, by that name."""
    names = frozenset(names)
    of_pods = names >= POD_REASONS
    own = [code(name) for name in sorted(names - POD_REASONS if of_pods else names)]
    return ", ".join([*own, *(["[those of pods](#reasons-of-pods)"] if of_pods else [])])
