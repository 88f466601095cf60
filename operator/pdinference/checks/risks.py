"""What works and may surprise: warnings that `kubectl apply` prints."""

import re
from collections.abc import Iterator

from pdinference.api.names import ENGINE_ROLES
from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import Problem
from pdinference.checks.options import is_official
from pdinference.planning.pinning import not_pinned

_COMMIT = re.compile("^[0-9a-f]{40}$")
_SECRET = re.compile(r"(?:PASSWORD|PASSWD|SECRET|_TOKEN|API_KEY|ACCESS_KEY)$", re.IGNORECASE)


def risks(spec: Spec) -> Iterator[Problem]:
    """Warnings about a valid spec."""
    yield from _secrets(spec)
    yield from _image_without_cpu(spec)
    hub = spec.model.source.hugging_face or spec.model.source.model_scope
    pinned = hub is None or _COMMIT.match(hub.revision) is not None
    if spec.model.trust_remote_code:
        when = "at any start" if spec.model.cache is None else "before it is downloaded"
        yield Problem(
            "spec.model.trustRemoteCode",
            "Python code from the model's repository will run in the pods."
            + ("" if pinned else f" Pin the revision to a commit that you have read: now it may change {when}."),
        )


def pinning_risks(spec: Spec) -> Iterator[Problem]:
    """The warning about a P that may run on any product."""
    if (problem := not_pinned(spec)) is not None:
        yield Problem("spec.parameter.accelerator.products", problem)


def _image_without_cpu(spec: Spec) -> Iterator[Problem]:
    roles = [role for role in ENGINE_ROLES if spec.of(role).accelerator.type == "CPU"]
    if roles and is_official(spec.engine.image):
        yield Problem(
            "spec.engine.image",
            f"{spec.engine.image} has vLLM for GPUs, and spec.{roles[0]}.accelerator.type is CPU: these pods fail at "
            "start. Use an image with vLLM for CPU; images/vllm-cpu builds one.",
        )


def _secrets(spec: Spec) -> Iterator[Problem]:
    for name, options in (("engine", spec.engine), ("parameter", spec.parameter), ("decode", spec.decode)):
        for variable in options.env:
            if _SECRET.search(variable):
                yield Problem(
                    f"spec.{name}.env.{variable}",
                    "This looks like a secret, and whoever may read the resource can read it. Take it from a Secret by "
                    "podTemplate (env.valueFrom.secretKeyRef), which the chart's policy.secrets can allow.",
                )
