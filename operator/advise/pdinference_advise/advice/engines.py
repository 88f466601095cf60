"""Engines of an arrangement, from the real plan of the resource that it would be.

Tests: tests/advise/advice/test_sources.py, tests/advise/advice/test_layouts.py, tests/advise/advice/test_advice.py
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pdinference.api.names import Role
from pdinference.api.v1alpha1 import Spec
from pdinference.api.v1alpha1.defaults import api_server_processes
from pdinference.api.validation import InvalidResourceError, validated
from pdinference.memory import Inputs, RolePlan, UnusableSpecError, fits, least_memory, plan_role
from pdinference.memory.figures import GIB
from pdinference.memory.model.shape import ModelFacts
from pdinference.memory.moved import mean_token_bytes
from pdinference.performance.calibration import Calibration, TimeSource, calibration_of
from pdinference.performance.devices import Device, device_key, device_of
from pdinference.performance.service import SERVICE, Service
from pdinference.performance.step import StepModel
from pdinference.performance.work import NotCountedError, work_of
from pdinference.router.ways import NO_OBJECTIVES, WayObjectives, allowed_ways
from pdinference_advise.advice.errors import Errors, band_of
from pdinference_advise.advice.layouts import EngineGroup, Layout
from pdinference_advise.advice.problem import AdviceError
from pdinference_advise.advice.resource import document_of
from pdinference_advise.advice.ways import KnownWay, Transport, way_of
from pdinference_advise.fitting.calibration_file import CalibrationFile, shape_of
from pdinference_advise.simulation.arrangement import Arrangement, EngineKind, Split
from pdinference_advise.simulation.engine import EngineLimits

NETWORK = Transport("tcp")
CERTAINTY: Final = tuple(TimeSource)
"""Sources, the most certain first."""


class DoesNotFitError(AdviceError):
    """The model does not fit a device at this size."""


@dataclass(frozen=True)
class SizedEngines:
    """Engines of a role at one size.

    Attributes:
        kind: What the simulation takes.
        plan: The memory plan of one device.
        source: Where the speed comes from.
    """

    kind: EngineKind
    plan: RolePlan
    source: TimeSource


@dataclass(frozen=True)
class Built:
    """An arrangement that can be simulated.

    Attributes:
        layout: The arrangement.
        arrangement: The same for the simulation.
        prefill: Source of the speed of prompts.
        decode: Source of the speed of tokens.
        transfer: Source of the speed of the way; None without P.
        kv_bits: Bits of an element of the KV cache.
    """

    layout: Layout
    arrangement: Arrangement
    prefill: TimeSource
    decode: TimeSource
    transfer: TimeSource | None
    kv_bits: int

    @property
    def source(self) -> TimeSource:
        """The least certain of all sources."""
        return max((self.prefill, self.decode, self.transfer or self.decode), key=CERTAINTY.index)

    @property
    def errors(self) -> Errors:
        """The error band of its predictions."""
        return band_of(self.source, mixture=self.arrangement.kind.steps.work.experts > 0)


class Engines:
    """Builds engines once for each size.

    Args:
        base: The user's document, which is valid.
        inputs: Inputs of the memory plan for it.
        prompt: Mean prompt tokens, for layers with a sliding window.
        calibrations: The user's own, which count more than those built in.
    """

    def __init__(
        self, base: Mapping[str, Any], inputs: Inputs, prompt: float, calibrations: Iterable[CalibrationFile] = ()
    ) -> None:
        self._base, self._inputs, self._prompt = base, inputs, prompt
        self._own = {device_key(one.product): one for one in calibrations}
        self._made: dict[tuple[Role, Layout], SizedEngines] = {}

    def engine(
        self,
        role: Role,
        product: str,
        tensor: int,
        *,
        split: bool,
        fp8: bool = False,
        step_tokens: int = 0,
        adaptive: bool = False,
    ) -> SizedEngines:
        """The engine of a role.

        Args:
            role: P or D.
            product: Product of its GPUs.
            tensor: Its GPUs.
            split: Whether the mode has P.
            fp8: Whether its KV cache is in FP8.
            step_tokens: Its tokens a step; 0: those of the file.
            adaptive: Whether each request goes its own way, although the file does not say so.

        Raises:
            DoesNotFitError: The model does not fit.
            AdviceError: Something of the model or the device is not known.
        """
        group = EngineGroup(product, tensor, 1)
        layout = Layout(group, group if split else None, NETWORK if split else None, fp8, step_tokens, adaptive)
        key = (role, layout)
        if key not in self._made:
            self._made[key] = self._make(*key)
        return self._made[key]

    def build(self, layout: Layout) -> Built:
        """An arrangement for the simulation.

        Raises:
            AdviceError: The model does not fit, or something is not known.
        """
        group, split, fp8, adaptive = layout.decode, layout.split, layout.fp8, layout.adaptive
        decode = self.engine(
            Role.DECODE,
            group.product,
            group.tensor,
            split=split,
            fp8=fp8,
            step_tokens=layout.step_tokens,
            adaptive=adaptive,
        )
        kv_bits = 8 * decode.plan.settings.kv_bytes
        policy = self._inputs.spec.router.policy
        if layout.parameter is None or layout.transport is None:
            whole = Arrangement(decode.kind, group.number, policy=policy, service=self._service(group.product))
            return Built(layout, whole, decode.source, decode.source, None, kv_bits)
        of_p = layout.parameter
        parameter = self.engine(Role.PARAMETER, of_p.product, of_p.tensor, split=True, fp8=fp8, adaptive=adaptive)
        known = way_of(layout.transport, group.product, of_p.tensor)
        parts = self._split(layout, parameter.kind, decode.plan, known)
        arrangement = Arrangement(decode.kind, group.number, parts, policy, self._service(of_p.product))
        return Built(layout, arrangement, parameter.source, decode.source, known.source, kv_bits)

    def _split(self, layout: Layout, kind: EngineKind, decode: RolePlan, known: KnownWay) -> Split:
        assert layout.parameter is not None  # noqa: S101 - for the type checker
        token = mean_token_bytes(decode, self._prompt)
        router = self._inputs.spec.router
        split = Split(kind, layout.parameter.number, known.way, token, layout.pods)
        if not (layout.adaptive or router.is_adaptive):
            return split
        stated = self._inputs.spec.objectives
        objectives = NO_OBJECTIVES if stated is None else WayObjectives(**stated.seconds)
        allowed = allowed_ways(router.when_no_prefill)
        routers = max(1, router.replicas)
        return replace(split, adaptive=True, allowed=allowed, objectives=objectives, routers=routers)

    def _make(self, role: Role, layout: Layout) -> SizedEngines:
        product = layout.decode.product
        spec = _spec(document_of(self._base, layout))
        try:
            plan = plan_role(replace(self._inputs, spec=spec), role)
        except UnusableSpecError as error:
            raise AdviceError(str(error)) from None
        _require_room(plan, product, layout.decode.tensor)
        steps, source = self._speed_of(plan, product)
        servers = api_server_processes(spec, role)
        if not _is_validated(plan, servers, split=layout.split):
            source = max(source, TimeSource.EXTRAPOLATED, key=CERTAINTY.index)
        limits = EngineLimits.of(plan.settings, int(plan.tokens.value or 0), self._service(product), servers)
        return SizedEngines(EngineKind(steps, limits, spec.caches_prefixes(role)), plan, source)

    def _service(self, product: str) -> Service:
        own = self._own.get(device_key(product))
        return own.times_of_requests if own else SERVICE

    def _speed(self, product: str) -> tuple[Device, Calibration]:
        if own := self._own.get(device_key(product)):
            return own.device, own.calibration
        if (device := device_of(product)) is None:
            raise AdviceError(f"The speed of {product} is not known, so nothing can be predicted for it.")
        return device, calibration_of(product)

    def _source(self, plan: RolePlan, product: str, calibration: Calibration) -> TimeSource:
        """Interpolated: the product was measured with such a model."""
        if calibration.source is not TimeSource.MEASURED:
            return calibration.source
        own = self._own.get(device_key(product))
        measured = own.model == shape_of(plan.facts) if own else _is_plain(plan.facts)
        return TimeSource.INTERPOLATED if measured else TimeSource.EXTRAPOLATED

    def _speed_of(self, plan: RolePlan, product: str) -> tuple[StepModel, TimeSource]:
        device, calibration = self._speed(product)
        try:
            steps = StepModel(work_of(plan.facts, plan.settings), device, calibration)
        except NotCountedError as error:
            raise AdviceError(
                f"{error} So the time of a step cannot be predicted. Measure both modes on your own traffic: "
                "docs/p-d-or-not.md."
            ) from None
        return steps, self._source(plan, product, calibration)


def _is_validated(plan: RolePlan, servers: int, *, split: bool) -> bool:
    """Whether engines of this kind are among those that benchmarks/results/advise.md compares with measurements."""
    settings = plan.settings
    fp8_unsplit = settings.kv_bytes == 1 and not split
    return settings.tensor == servers == 1 and settings.quantization is None and not fp8_unsplit


def _is_plain(facts: ModelFacts) -> bool:
    """Whether a model is built like the one that the built-in calibration was fitted to: dense, with full attention."""
    return facts.moe is None and facts.mla is None and not facts.recurrent and not any(facts.windows)


def _spec(document: Mapping[str, Any]) -> Spec:
    try:
        return validated(document).spec
    except InvalidResourceError as error:
        problems = " ".join(str(problem) for problem in error.problems)
        raise AdviceError(f"The file cannot be varied: {problems}") from None


def _require_room(plan: RolePlan, product: str, tensor: int) -> None:
    if fits(plan) is False:
        least, taken = least_memory(plan).value, plan.stage.requested.value
        needs = f" needs {least / GIB:.0f} GiB of a GPU, and vLLM may take {taken / GIB:.0f}" if least and taken else ""
        raise DoesNotFitError(f"TP {tensor} on {product}{needs or ' does not fit'}")
    if plan.tokens.value is None:
        raise AdviceError(f"The KV cache of {product} with TP {tensor} is not known. {plan.tokens.note}")
