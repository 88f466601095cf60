"""Problems of `spec.model.lora`: name collisions, and too few CPU slots.

Tests: tests/checks/test_examine.py
"""

from collections.abc import Iterator

from pdinference.api.names import ENGINE_ROLES
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.validation import Problem
from pdinference.engine.vllm import served_model_name


def lora_problems(resource: PDInference) -> Iterator[Problem]:
    """Problems of spec.model.lora."""
    lora = resource.spec.model.lora
    if lora is None:
        return
    served = served_model_name(resource)
    for index, adapter in enumerate(lora.adapters):
        where = f"spec.model.lora.adapters[{index}].name"
        if adapter.name == served:
            yield Problem(where, f"{adapter.name} is the name of the model. Give the adapter another name.")
    for role in ENGINE_ROLES:
        yield from _cpu_slots(f"spec.{role}.args", resource.spec.of(role).args, lora.max_active)
    yield from _cpu_slots("spec.engine.args", resource.spec.engine.args, lora.max_active)


def _cpu_slots(field: str, args: dict[str, object], active: int) -> Iterator[Problem]:
    # `_validate_lora_config` in vllm/config/lora.py
    slots = args.get("max-cpu-loras")
    if isinstance(slots, int) and slots < active:
        yield Problem(
            f"{field}.max-cpu-loras",
            f"{slots} is less than spec.model.lora.maxActive ({active}). Use at least {active}.",
        )
