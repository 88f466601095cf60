"""Problems of vLLM's number of API server processes (`args.api-server-count`)."""

from collections.abc import Iterator

from pdinference.api.v1alpha1 import Spec
from pdinference.api.validation import Problem
from pdinference.checks.options import arguments_of

_OPTION = "api-server-count"


def api_server_problems(spec: Spec) -> Iterator[Problem]:
    """Numbers with which vLLM does not start, or starts without a server (vllm/entrypoints/cli/serve.py)."""
    dynamic = spec.model.lora is not None and spec.model.lora.dynamic_loading
    for field, arguments in arguments_of(spec):
        count = _whole(arguments.get(_OPTION))
        if count is None:
            continue
        if count < 1:
            yield Problem(f"{field}.{_OPTION}", "vLLM would start without an API server. Use at least 1.")
        elif count > 1 and dynamic:
            yield Problem(
                f"{field}.{_OPTION}",
                "vLLM loads adapters at run time only with one API server. Use 1, or set "
                "spec.model.lora.dynamicLoading to false.",
            )


def _whole(value: object) -> int | None:
    """A whole number, also as text; other values are none of this check's business."""
    try:
        return None if isinstance(value, bool) else int(str(value))
    except ValueError:
        return None
