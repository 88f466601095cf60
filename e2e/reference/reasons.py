"""What each reason of a condition means, and what to do. tests/test_reference.py compares it with the conditions.

Links are relative to docs/reference.
"""

from typing import Final, NamedTuple


class Reason(NamedTuple):
    """One reason.

    Attributes:
        meaning: What it means.
        remedy: What to do; empty for nothing.
    """

    meaning: str
    remedy: str = ""


_STUCK: Final = "[a roll-out that is stuck](../resource.md#a-roll-out-that-is-stuck)"
_DOWNLOAD: Final = "[download a model](../models.md#download-a-model)"
_POD_TEMPLATE: Final = "[`podTemplate`](../pods.md#other-pod-settings-podtemplate-of-each-role-and-of-the-router)"
_SOURCE: Final = "[`spec.autoscaling.source`](../autoscaling-sources.md)"
_AGAIN: Final = "With its output on a volume, a new PDBatch [continues](../batch.md#failures-and-changes)."

REASONS: Final = {
    "Accepted": Reason("Every Gateway accepts the HTTPRoute."),
    "Active": Reason("Replica counts follow the load."),
    "Aggregated": Reason("There is no P: `spec.mode` is `Aggregated`."),
    "AllReady": Reason("All desired pods are ready."),
    "AmbiguousSelector": Reason(
        "Another HorizontalPodAutoscaler selects the same pods.", "Delete the other one, or remove `autoscaling`."
    ),
    "ApiKeys": Reason("Clients outside the cluster need an API key."),
    "Asking": Reason("The Job lists the files of the model."),
    "Asleep": Reason("P and D have no pods, because no request came. The next request starts them."),
    "Checked": Reason("Pods have verified the model's files."),
    "ComputedByDecode": Reason("D computed prompts itself.", "[Runbook](../runbooks.md#computed-by-decode)."),
    "ContainerCannotRun": Reason(
        "The container runtime could not start the container.", "Read the message; correct image, command or mounts."
    ),
    "CrashLoopBackOff": Reason(
        "A container has stopped, and the kubelet waits before the next start.",
        "Read the log of the container before this one: `kubectl logs POD -p`.",
    ),
    "CrashLooping": Reason(
        "A container has stopped three times.",
        f"Read its log (`kubectl logs POD -p`), and correct the cause: {_STUCK}.",
    ),
    "CreateContainerConfigError": Reason(
        "A Secret or a ConfigMap of a variable, or the key in it, does not exist.",
        "Create it in the namespace of the resource, and the pod starts; or correct its name or key in the spec.",
    ),
    "DoesNotFit": Reason(
        "The model, or one request of maximum length, does not fit the devices of a role.",
        "Apply one of the changes in the message; [memory](../memory.md) explains the numbers.",
    ),
    "Downloaded": Reason("The Job has downloaded the model."),
    "Downloading": Reason("The Job downloads the model. The message has the progress."),
    "ErrImageNeverPull": Reason(
        "The image is not on the node, and its pull policy is `Never`.",
        "Load the image onto the node, or change the policy.",
    ),
    "Error": Reason("A container has ended with an error.", "Read its log: `kubectl logs POD -p`."),
    "Failed": Reason("The Job has failed. It is tried again.", f"{_DOWNLOAD} has the causes."),
    "Failing": Reason("Transfers of KV cache fail or expire.", "[Runbook](../runbooks.md#failing)."),
    "Fits": Reason("The model and one request of maximum length fit."),
    "GpuBudget": Reason(
        "`spec.autoscaling.gpuBudget` has no room for more pods.",
        "Wait for pods that end, or raise [the budget](../autoscaling.md#p-and-d-together-specautoscaling).",
    ),
    "HostLocal": Reason("P runs in the pods of D (`transfer.path`)."),
    "ImagePullBackOff": Reason(
        "An image cannot be pulled.",
        f"Correct its name. If the registry needs a login, set `imagePullSecrets` in {_POD_TEMPLATE}.",
    ),
    "Inspected": Reason("The Job has read the facts about the model."),
    "InvalidImageName": Reason("The name of an image is not valid.", "Correct it."),
    "InvalidSpec": Reason(
        "The stored spec is not valid. The last valid one stays in effect.",
        "Correct the fields in the message, or [undo the edit](../undo.md#undo-an-edit).",
    ),
    "Met": Reason("Requests keep the objectives."),
    "MetricsApiElsewhere": Reason(
        "Another server, such as KEDA or prometheus-adapter, has the API group `external.metrics.k8s.io`.",
        f"Set {_SOURCE}.",
    ),
    "MetricsApiMissing": Reason("No server has the API group `external.metrics.k8s.io`.", "Run `helm upgrade`."),
    "MetricsApiOff": Reason(
        "The operator serves no metrics.", f"Set the chart's value `metricsApi.enabled`, or {_SOURCE}."
    ),
    "MetricsApiUnavailable": Reason(
        "The API server does not reach the operator for metrics.",
        "Open port 8443 of the operator's pods to the control plane. A firewall is a frequent cause.",
    ),
    "Missed": Reason("Requests miss an objective.", "[Runbook](../runbooks.md#objectives-missed)."),
    "ModelNotReady": Reason("The role's pods wait for the download of the model.", "Look at `ModelReady`."),
    "NameConflict": Reason(
        "An object of another owner has the name of a child. It is left alone.",
        "Delete the object with the command in the message, or rename the resource.",
    ),
    "NoApiKeys": Reason(
        "Clients outside the cluster can send requests without an API key.",
        "Set [`router.apiKeys`](../clients.md#api-keys), unless this is what you want.",
    ),
    "NoRequests": Reason("No streamed answers in the last minutes."),
    "NoRequestsYet": Reason("Too few requests to judge."),
    "NoUsableModel": Reason(
        "A pod found its model damaged or absent.",
        "Repair the files: [a model on a claim, in an image or on a node]"
        "(../models.md#a-model-on-a-claim-in-an-image-or-on-a-node).",
    ),
    "NotAccepted": Reason(
        "A Gateway does not accept the HTTPRoute.",
        "[Gateways](../gateways.md#what-a-route-needs) has the requirements.",
    ),
    "NotAllReady": Reason("The roll-out is complete, and pods are missing.", "Look at the conditions of the roles."),
    "NotAnswering": Reason(
        "A pod that Kubernetes calls ready does not answer the routers: it accepts no connection, its server hangs, or "
        "its engine takes no step. Requests go to other pods, if there are any.",
        "Read its log. The kubelet restarts a server that hangs; delete a pod whose engine takes no step.",
    ),
    "NotChecked": Reason("No pod has verified the model's files yet."),
    "NotKnown": Reason(
        "The size of the model or of a device's memory is not known.",
        "Set [`model.inspect` or `model.architecture`](../resource.md#facts-about-the-model-inspect-and-architecture), "
        "or `accelerator.memory`.",
    ),
    "NotPinned": Reason(
        "P may run on any node with the extended resource.", "Name `parameter.accelerator.products`, if it matters."
    ),
    "NotServed": Reason(
        "The cluster does not serve the kind of a child, or a field: `accelerator.devices` need Kubernetes 1.34, "
        "`source.image` needs 1.35, `router.route` needs the CRDs of the Gateway API.",
        "Install what the message names, or remove the field.",
    ),
    "OOMKilled": Reason("A container used more memory than its limit.", "Raise `resources.limits.memory` of the role."),
    "Paused": Reason(
        "The resource is paused. While `Progressing` is True, the stored spec is not rolled out.",
        "`kubectl pdi resume`: [hold edits back](../undo.md#hold-edits-back).",
    ),
    "Pending": Reason(
        "A Gateway's controller has not reported yet.", "Check that the Gateway exists and has a controller."
    ),
    "Pinned": Reason("P runs only on products or devices that the spec names."),
    "PodsNotCreated": Reason(
        "A quota or a webhook refuses pods.", "Read the message; change the quota, or what the webhook refuses."
    ),
    "PrefillFallback": Reason(
        "D computed prompts that P did not.", "Look at `ParameterReady`; [runbook](../runbooks.md#computed-by-decode)."
    ),
    "PreparingModel": Reason("An init container downloads or verifies the model."),
    "ProgressDeadlineExceeded": Reason(
        "No progress until the deadline, for another cause than those with a reason of their own.",
        f"Look at the pods; {_STUCK}.",
    ),
    "Ratio": Reason(
        "`spec.autoscaling.ratio` limits a role.",
        "If requests wait: widen [the ratio](../autoscaling.md#p-and-d-together-specautoscaling), or raise "
        "`maxReplicas` of the other role.",
    ),
    "Ready": Reason("The model is there, and its Job is about to end."),
    "RollingOut": Reason("The operator rolls out the spec."),
    "RolloutComplete": Reason("The roll-out is complete."),
    "Saturated": Reason("The path of the KV cache is the bottleneck.", "[Runbook](../runbooks.md#saturated)."),
    "ScaleDownLimit": Reason(
        "`behavior.scaleDown` limits how many pods go at a time.", "If pods idle too long: raise its policies."
    ),
    "ScaleDownStabilized": Reason("Pods stay for the stabilisation window of `behavior.scaleDown`."),
    "ScaleUpLimit": Reason(
        "`behavior.scaleUp` limits how many pods come at a time.",
        "If requests wait meanwhile: raise its policies, or `minReplicas`.",
    ),
    "ScaledToZero": Reason("The spec wants no pods: `replicas` is 0.", "Raise `replicas`."),
    "ScalingDisabled": Reason(
        "The replica count of the scale target is 0.", "Raise it: `kubectl scale pds NAME --replicas=1`."
    ),
    "Serving": Reason("Requests are answered."),
    "Slow": Reason("KV cache moves slower than the hardware should allow.", "[Runbook](../runbooks.md#slow)."),
    "StartError": Reason(
        "The container runtime could not start the container.", "Read the message; correct image, command or mounts."
    ),
    "Starting": Reason("Pods start, or the load has not been read yet. The message says which phase."),
    "TooFewReplicas": Reason("`minReplicas` applies.", "If pods idle: lower it."),
    "TooManyReplicas": Reason("`maxReplicas` applies.", "Raise it, if requests wait."),
    "Transferring": Reason("KV cache gets from P to D, as requests show. Its contents were not verified."),
    "Unschedulable": Reason(
        "A pod fits on no node.",
        "The message quotes the scheduler and names the fields to check: devices, products, taints, claims, spread.",
    ),
    "Verified": Reason("KV cache gets from P to D, and a canary had the right answer."),
    "Verifying": Reason("The Job verifies size and hash of the model's files."),
    "Waiting": Reason("Another pod downloads the same model into the same cache."),
    "WrongAnswers": Reason(
        "Answers of P and D differ from those of P alone.", "At once: [runbook](../runbooks.md#wrong-answers)."
    ),
}

OF_SCALERS: Final = {
    "AsRecommended": Reason("The allocated count is the recommended one."),
    "Asleep": REASONS["Asleep"],
    "GpuBudget": REASONS["GpuBudget"],
    "Ratio": REASONS["Ratio"],
    "Starting": Reason("A new revision does not serve yet. The recommended count applies when it does."),
    "TooFewReplicas": REASONS["TooFewReplicas"],
    "TooManyReplicas": REASONS["TooManyReplicas"],
}
"""Reasons of the condition `Limited` of a PDScaler."""

OF_BATCHES: Final = {
    "Complete": Reason(
        "Every request was answered or has failed.",
        "Check `FAILED`; `errors.jsonl` has a reason for each failed request.",
    ),
    "DeadlineExceeded": Reason(
        "The batch took longer than `spec.timeoutSeconds`. Its answers are kept.",
        f"Allow more time. {_AGAIN}",
    ),
    "Failed": Reason(
        "The Job failed. Its answers are kept.",
        f"Correct what the message names. {_AGAIN}",
    ),
    "InvalidSpec": Reason("The stored spec is not valid.", "Correct the fields in the message."),
    "Running": Reason("Requests are being sent."),
    "Starting": Reason("The Job or its pod is being created."),
    "Suspended": Reason("`spec.suspend` is true.", "To continue, set it to false."),
    "WaitingForService": Reason("The PDInference does not exist, or is not Ready.", "Look at its condition `Ready`."),
}
"""Reasons of the conditions of a PDBatch. Those of pods and of objects that cannot be applied are added to them."""
