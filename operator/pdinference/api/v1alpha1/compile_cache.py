"""`spec.engine.compileCache`: where engines keep what they compile.

Tests: tests/engine/test_compile_cache.py
"""

from typing import Any, ClassVar, Final

from pdinference.api.v1alpha1.base import ApiModel, Rule
from pdinference.api.v1alpha1.source import CacheClaim, HostPathSource


class CompileCache(ApiModel):
    """Where engines keep compiled code for later starts. Set exactly one member."""

    persistent_volume_claim: CacheClaim | None = None
    """A claim without models. Several PDInferences may share it."""
    host_path: HostPathSource | None = None
    """A folder on each node, without models, that user 65532 can write to. The chart value `allowedHostPaths` must list
    it with `readOnly: false`, for this namespace alone."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.persistentVolumeClaim) != has(self.hostPath)",
            holds=lambda c: (c.persistent_volume_claim is None) != (c.host_path is None),
            message="Set exactly one of persistentVolumeClaim and hostPath.",
        ),
    )


_CLAIM: Final = "persistentVolumeClaim.claimName"


def _is_claim_of(member: str) -> str:
    """In CEL: whether a member of the model has the claim of the cache."""
    return f"has({member}.persistentVolumeClaim) && {member}.{_CLAIM} == self.engine.compileCache.{_CLAIM}"


def _claim(parent: Any) -> str | None:
    claim = parent.persistent_volume_claim if parent is not None else None
    return claim.claim_name if claim is not None else None


COMPILE_CACHE_RULES: Final = (
    Rule(
        cel="!has(self.engine.compileCache) || !has(self.engine.compileCache.persistentVolumeClaim) || "
        f"!(has(self.model.cache) && {_is_claim_of('self.model.cache')}) && !({_is_claim_of('self.model.source')})",
        holds=lambda s: (
            _claim(s.engine.compile_cache) is None
            or _claim(s.engine.compile_cache) not in (_claim(s.model.cache), _claim(s.model.source))
        ),
        field=f"engine.compileCache.{_CLAIM}",
        message="This claim holds models, which engines must not change. Use another claim.",
    ),
)
