"""The same GPUs unsplit: ordinary vLLM servers, which prefill and decode alike, on the GPUs of P and D.

GPUs are grouped by product, because a server over different products is not planned here. Of the tensor-parallel sizes
that the model can be split into, each group gets the one with most KV tokens.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pdinference.api.names import ENGINE_ROLES, Role
from pdinference.memory import instance
from pdinference.memory.advice import fits
from pdinference.memory.comparison.gpu_pools import GpuPool, Plans, pools_of
from pdinference.memory.comparison.result import Compared, Comparison, Holding, Servers, times, total
from pdinference.memory.plan import Inputs, RolePlan, plan_settings
from pdinference.memory.settings import Settings
from pdinference.memory.split import GPUS_OF_A_HOST, tensor_sizes


def compare(inputs: Inputs, plans: Plans) -> Comparison:
    """Compare P and D with ordinary servers on the same GPUs.

    Args:
        inputs: Inputs of the plans.
        plans: Of P and of D.
    """
    if not inputs.spec.transfers_kv:
        return Comparison((), ("spec.mode is Aggregated, so the servers are not split.",))
    pools = pools_of(inputs, plans)
    if not pools:
        return Comparison((), ("P and D run on CPU, so there are no GPUs to compare.",))
    options = [_options(inputs, plans, pool) for pool in pools]
    counts = [dict.fromkeys(ENGINE_ROLES, 1)]
    if (replicas := _replicas(inputs)) is not None:
        counts.append(replicas)
    compared = tuple(
        Compared(
            count,
            _split(plans, count),
            tuple(_best(pool, choices, pool.gpus(count)) for pool, choices in zip(pools, options, strict=True)),
        )
        for count in counts
    )
    return Comparison(compared, tuple(_notes(inputs, plans, pools, compared)))


def _options(inputs: Inputs, plans: Plans, pool: GpuPool) -> list[RolePlan]:
    """Ordinary servers that the GPUs of one P and one D instance could run: one device of each."""
    role = Role.DECODE if Role.DECODE in pool.instances else Role.PARAMETER
    base = _unsplit_settings(plans, plans[role].settings, inputs)
    gpus = sum(pool.instances.values())
    largest = max(GPUS_OF_A_HOST, *(plan.settings.tensor for plan in plans.values()))
    expert = inputs.spec.of(role).parallelism.expert
    found = []
    for tensor in tensor_sizes(inputs.facts):
        if tensor > min(gpus, largest):
            break
        # Where D has data-parallel copies, so has the ordinary server: experts are spread over all of its GPUs.
        data = gpus // tensor if base.data > 1 else 1
        settings = replace(base, tensor=tensor, data=data, expert_ranks=tensor * data if expert else 1)
        found.append(plan_settings(inputs, settings, pool.memory))
    return found


def _unsplit_settings(plans: Plans, own: Settings, inputs: Inputs) -> Settings:
    """A role's settings without stages and tiers; prompts are computed too, in the larger steps of P and D."""
    steps = [plan.settings for plan in plans.values() if not plan.settings.cpu]
    largest = max(steps, key=lambda settings: settings.max_num_batched_tokens)
    return replace(
        own,
        layer_partition=(inputs.facts.layers,),
        max_num_batched_tokens=largest.max_num_batched_tokens,
        batch_assumed=largest.batch_assumed,
        expert_transport=None,  # those of P and of D are for one kind of work each
        cpu_tier=None,
        disk_tier=None,
    )


def _best(pool: GpuPool, options: Iterable[RolePlan], gpus: int) -> Servers:
    """The servers with the most KV tokens; if unknown, those that use the most GPUs, and among these the largest."""

    def order(servers: Servers) -> tuple[bool, float, int, int]:
        held = servers.holding.tokens.value or 0
        return fits(servers.plan) is not False, held, -servers.idle, servers.plan.settings.tensor

    made = (Servers(pool.products, gpus, gpus // instance.devices(plan), plan) for plan in options)
    return max(made, key=order)


def _split(plans: Plans, instances: Mapping[Role, int]) -> Holding:
    on_gpus = {role: plan for role, plan in plans.items() if not plan.settings.cpu}
    count = instances[Role.DECODE]
    return Holding(
        sum(instances[role] * instance.devices(plan) for role, plan in on_gpus.items()),
        total(times(instances[role], instance.weights(plan)) for role, plan in on_gpus.items()),
        times(count, instance.tokens(plans[Role.DECODE])),
        times(count, instance.concurrency(plans[Role.DECODE])),
    )


def _replicas(inputs: Inputs) -> dict[Role, int] | None:
    """Replica counts, where they are fixed, not zero, and more than one of each."""
    counts = {role: inputs.spec.instances(role) for role in ENGINE_ROLES}
    fixed = not _is_scaled(inputs) and min(counts.values()) > 0
    return counts if fixed and max(counts.values()) > 1 else None


def _is_scaled(inputs: Inputs) -> bool:
    return any(inputs.spec.of(role).autoscaled for role in inputs.spec.workload_roles)


def _notes(inputs: Inputs, plans: Plans, pools: list[GpuPool], compared: tuple[Compared, ...]) -> Iterable[str]:
    cpu = {role for role, plan in plans.items() if plan.settings.cpu}
    yield "Split: KV tokens are those of D."
    yield (
        "Unsplit: ordinary vLLM servers with the options of D (of P on GPUs that only P has), the larger "
        "maxNumBatchedTokens of both, and no KV tiers or expertTransport. "
        "Their tensor-parallel size (TP) is the one with most KV tokens."
    )
    if Role.DECODE in cpu:
        yield "D runs on CPU, and its KV cache is in CPU memory. Only P's GPUs are compared."
    if Role.PARAMETER in cpu:
        yield "P runs on CPU. Only D's GPUs are compared."
    if len(pools) > 1:
        yield "The GPUs are of different kinds. Each kind has its own servers; one server over several is not compared."
    for servers in compared[0].servers:
        settings = servers.plan.settings
        if settings.tensor > max(inputs.spec.of(role).parallelism.devices_per_pod for role in ENGINE_ROLES):
            yield f"TP {settings.tensor} needs {settings.tensor} GPUs in one host."
        if fits(servers.plan) is False:
            yield f"The model does not fit {servers.gpus} {servers.product or 'GPUs'} unsplit."
    if _is_scaled(inputs):
        yield "Replica counts follow the load (autoscaling), so only one P and one D instance are compared."
