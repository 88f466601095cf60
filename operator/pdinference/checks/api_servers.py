"""Problems and risks of several API server processes in a pod (`args.api-server-count`)."""

from collections.abc import Iterator

from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.defaults import API_SERVERS, stated_api_servers
from pdinference.api.validation import Problem
from pdinference.checks.options import arguments_of


def api_server_problems(spec: Spec) -> Iterator[Problem]:
    """Numbers with which vLLM does not start, or starts without a server (vllm/entrypoints/cli/serve.py)."""
    dynamic = spec.model.lora is not None and spec.model.lora.dynamic_loading
    for field, count in _counts(spec):
        if count < 1:
            yield Problem(field, "vLLM would start without an API server. Use at least 1.")
        elif count > 1 and dynamic:
            yield Problem(
                field,
                "vLLM loads adapters at run time only with one API server. Use 1, or set "
                "spec.model.lora.dynamicLoading to false.",
            )


def api_server_warnings(spec: Spec) -> Iterator[Problem]:
    """Numbers with which requests are lost when a pod stops."""
    for field, count in _counts(spec):
        if count > 1:
            yield Problem(
                field,
                "With several API servers, vLLM does not complete running requests when a pod stops. Each roll-out and "
                "scale-down breaks them. Use 1, or more replicas.",
            )


def _counts(spec: Spec) -> Iterator[tuple[str, int]]:
    """The numbers in a spec, each with its field. Values of another type are an error of their own."""
    for field, arguments in arguments_of(spec):
        if (count := stated_api_servers(arguments)) is not None:
            yield f"{field}.{API_SERVERS}", count
