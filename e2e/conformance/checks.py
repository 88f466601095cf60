"""Which check belongs to which requirement, and in which order they run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import httpx

from e2e.conformance.autoscaling import pod_autoscaling
from e2e.conformance.bench import Bench
from e2e.conformance.checklist import Requirement
from e2e.conformance.devices import cluster_autoscaling, dra_support, secure_accelerator_access
from e2e.conformance.evidence import Evidence, Gap, Verdict
from e2e.conformance.gang import gang_scheduling
from e2e.conformance.gateway import ai_inference
from e2e.conformance.notes import Notes
from e2e.conformance.operator_works import robust_controller
from e2e.conformance.serving import ai_service_metrics, disaggregated_inference
from e2e.kubectl import KubectlError
from e2e.waiting import WaitTimeoutError

Check = Callable[[Bench, Notes], None]

CHECKS: Final[Mapping[str, Check]] = MappingProxyType(
    {
        check.__name__: check
        for check in (
            robust_controller,  # the others need what it applies
            disaggregated_inference,
            ai_service_metrics,
            pod_autoscaling,
            gang_scheduling,
            dra_support,
            cluster_autoscaling,
            secure_accelerator_access,
            ai_inference,
        )
    }
)
"""By the id of the requirement, in the order in which they run."""

OF_THE_PLATFORM: Final[Mapping[str, Gap]] = MappingProxyType(
    {
        "driver_runtime_management": Gap(
            Verdict.NEEDS_ACCELERATOR, "Drivers belong to nodes with accelerators; the operator installs none."
        ),
        "gpu_sharing": Gap(Verdict.NEEDS_ACCELERATOR, "A GPU is shared by its device plugin or its DRA driver."),
        "virtualized_accelerator": Gap(
            Verdict.NEEDS_ACCELERATOR, "A virtual GPU is made by its device plugin or its DRA driver."
        ),
        "advanced_inference_ingress": Gap(
            Verdict.NOT_APPLICABLE,
            "The operator's own router chooses P and D pods, by their KV cache and load. It takes the place of an "
            "endpoint picker behind any Service or Gateway.",
        ),
        "high_performance_networking": Gap(
            Verdict.NOT_SHOWN, "This run looks at no network device; with transfer.rdma, P and D request one."
        ),
        "accelerator_metrics": Gap(
            Verdict.NEEDS_ACCELERATOR, "The exporter belongs to nodes with accelerators; the operator installs none."
        ),
    }
)
"""Requirements of which the operator takes no part that this run could show."""


def examine(requirement: Requirement, bench: Bench, folder: Path) -> Evidence:
    """Run the check of a requirement. What goes wrong in it is an observation."""
    notes = Notes(requirement, bench.kubectl, folder)
    try:
        CHECKS[requirement.id](bench, notes)
    except (KubectlError, WaitTimeoutError, httpx.HTTPError) as error:
        notes.saw("the check comes to its end", False, str(error))
    return notes.evidence()
