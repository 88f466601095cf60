"""The requirements of the Kubernetes AI Conformance programme, and how a cluster with accelerators shows each of them.

Sources: AIConformance-1.35.yaml and AIConformance-1.36.yaml in docs/ of https://github.com/cncf/k8s-ai-conformance, and
the test plans (kars/) of https://github.com/kubernetes-sigs/ai-conformance.
"""

from dataclasses import dataclass
from typing import Final, Literal

SOURCE: Final = "https://github.com/cncf/k8s-ai-conformance/blob/main/docs"
NEWEST: Final = "1.36"
"""The checklist whose requirements are listed."""
_BEFORE: Final = "1.35"
"""The last checklist with `dra_support`; the conformance tests of Kubernetes cover it since."""

Level = Literal["MUST", "SHOULD"]


@dataclass(frozen=True)
class Requirement:
    """One row of the checklist.

    Attributes:
        category: Its section of the checklist.
        id: Its id there.
        level: MUST or SHOULD.
        asks: What it asks of a platform, in short.
        elsewhere: How a cluster that has what the local one lacks shows it.
        version: The checklist that has it.
    """

    category: str
    id: str
    level: Level
    asks: str
    elsewhere: str
    version: str = NEWEST


REQUIREMENTS: Final = (
    Requirement(
        "accelerators",
        "dra_support",
        "MUST",
        "The API server serves dynamic resource allocation.",
        "kubectl get deviceclasses,resourceslices, and a PDInference like examples/exact-devices.yaml",
        _BEFORE,
    ),
    Requirement(
        "accelerators",
        "driver_runtime_management",
        "SHOULD",
        "Drivers and container runtimes of nodes with accelerators can be verified.",
        "kubectl get resourceslices -o yaml (attributes of the DRA driver), or the validator of the GPU operator",
    ),
    Requirement(
        "accelerators",
        "gpu_sharing",
        "SHOULD",
        "A share of a GPU can be scheduled, by partition or by time slices.",
        "A PDInference with accelerator.resourceName of a partition, for example nvidia.com/mig-3g.40gb",
    ),
    Requirement(
        "accelerators",
        "virtualized_accelerator",
        "SHOULD",
        "Virtual accelerators are exposed as physical ones are.",
        "A PDInference on nodes with virtual GPUs, by accelerator.resourceName or accelerator.devices",
    ),
    Requirement(
        "networking",
        "ai_inference",
        "MUST",
        "An implementation of the Gateway API routes requests by weight and by header.",
        "A PDInference with router.route to a Gateway of yours, kubectl get httproute -o yaml, and a request to it",
    ),
    Requirement(
        "networking",
        "advanced_inference_ingress",
        "SHOULD",
        "An implementation of the Gateway API Inference Extension routes requests by what pods report.",
        "go test ./conformance of kubernetes-sigs/gateway-api-inference-extension, with a GatewayClass of yours",
    ),
    Requirement(
        "networking",
        "high_performance_networking",
        "SHOULD",
        "Network devices for fast traffic between pods are discovered and scheduled.",
        "A PDInference with transfer.rdma, and pdinference doctor --bandwidth",
    ),
    Requirement(
        "networking",
        "disaggregated_inference",
        "SHOULD",
        "A solution with separate prefill and decode runs, and its parts scale apart.",
        "make conformance CLUSTER=current RESOURCE=<a PDInference on your GPUs>",
    ),
    Requirement(
        "schedulingOrchestration",
        "gang_scheduling",
        "MUST",
        "A gang scheduler admits all pods of a workload, or none.",
        "make conformance CLUSTER=current, where Kueue is installed",
    ),
    Requirement(
        "schedulingOrchestration",
        "cluster_autoscaling",
        "MUST",
        "A cluster autoscaler, if there is one, adds and removes nodes with accelerators that pods wait for.",
        "kubectl scale pdi <name> --replicas=<more than there are GPUs>, then kubectl get pods,nodes -w",
    ),
    Requirement(
        "schedulingOrchestration",
        "pod_autoscaling",
        "MUST",
        "The HorizontalPodAutoscaler scales pods with accelerators by custom metrics.",
        "make conformance CLUSTER=current RESOURCE=<a PDInference on your GPUs>",
    ),
    Requirement(
        "observability",
        "accelerator_metrics",
        "MUST",
        "An exporter shows the utilization and memory of each accelerator.",
        "curl <dcgm-exporter>:9400/metrics; the last row of the operator's dashboard shows it beside P and D",
    ),
    Requirement(
        "observability",
        "ai_service_metrics",
        "MUST",
        "A monitoring system discovers workloads and collects their metrics.",
        "helm upgrade ... --set autoscaling.podMonitor.enabled=true, then sum by (pdinference_io_name) "
        "(vllm:request_success_total) in Prometheus",
    ),
    Requirement(
        "security",
        "secure_accelerator_access",
        "MUST",
        "Containers reach only the accelerators that Kubernetes gave them.",
        "TestSecureAcceleratorAccess of kubernetes-sigs/ai-conformance (go test ./test), on nodes with accelerators",
    ),
    Requirement(
        "operator",
        "robust_controller",
        "MUST",
        "An AI operator installs, its webhook refuses what is invalid, and its resources are reconciled.",
        "make conformance CLUSTER=current REGISTRY=<where you pushed the images>",
    ),
)
