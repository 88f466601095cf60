"""`spec.model.source` and `spec.model.cache`: where weights come from, where they are kept, what is known of them."""

import hashlib
import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from pdinference.api.v1alpha1.base import ApiModel, AsJson, ImageReference, Matches, ObjectName, Rule

# Segments start with a letter, digit or underscore: no option (`-x`), no `..`, no absolute path.
SEGMENT = "[A-Za-z0-9_][A-Za-z0-9_.-]*"
_PATH_RULES = "each part begins with a letter, digit or underscore and goes on with these, dots or dashes"


Repository = Annotated[
    str,
    Field(max_length=193),
    Matches(
        "^[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*$",
        "Write the repository as owner/name, for example meta-llama/Llama-3.1-8B-Instruct.",
    ),
]
Revision = Annotated[
    str, Field(max_length=255), Matches(f"^{SEGMENT}(/{SEGMENT})*$", f"Write a branch, tag or commit; {_PATH_RULES}.")
]
RelativePath = Annotated[
    str,
    Field(max_length=1024),
    Matches(
        f"^{SEGMENT}(/{SEGMENT})*$",
        f"Write a path within the volume, without a slash in front, for example llama/8b; {_PATH_RULES}.",
    ),
]
AbsolutePath = Annotated[
    str,
    Field(max_length=1024),
    Matches(f"^(/{SEGMENT})+$", f"Write an absolute path, for example /models/llama; {_PATH_RULES}."),
]


_CONFIG_LIMIT = 65536


def _short(config: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(config)) > _CONFIG_LIMIT:
        raise ValueError(f"Write at most {_CONFIG_LIMIT} characters; the plan needs sizes and counts only.")
    return config


class SecretKey(ApiModel):
    """One key of a Secret in the namespace of the PDInference. The operator never reads it; the kubelet does."""

    name: ObjectName
    """Name of the Secret."""
    key: Annotated[
        str,
        Field(max_length=253),
        Matches("^[A-Za-z0-9._-]+$", "Write a key of a Secret: letters, digits, dots, dashes and underscores."),
    ]
    """Key within the Secret."""


class HuggingFaceSource(ApiModel):
    """A repository on the Hugging Face hub; each pod downloads it at start."""

    repository: Repository
    """Repository as `owner/name`, for example `meta-llama/Llama-3.1-8B-Instruct`."""
    revision: Revision = "main"
    """Branch, tag or commit. Pin a commit, so that every pod serves the same weights."""
    token_secret: SecretKey | None = None
    """Secret with the access token, for gated and private repositories."""


class ModelScopeSource(ApiModel):
    """A repository on ModelScope; each pod downloads it at start."""

    repository: Repository
    """Repository as `owner/name`, for example `Qwen/Qwen2.5-7B-Instruct`."""
    revision: Revision = "master"
    """Branch, tag or commit. Pin a commit, so that every pod serves the same weights."""


class ImageSource(ApiModel):
    """An OCI image or artifact that the kubelet mounts as a read-only volume (Kubernetes' ImageVolume feature)."""

    reference: ImageReference
    """Image, with a tag or, better, a digest."""
    path: RelativePath | None = None
    """Folder of the model within the image, relative to its root. Default: the root."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the kubelet pulls it."""


class HostPathSource(ApiModel):
    """A folder of the node. The operator has to be installed to allow it (`allowedHostPaths`)."""

    path: AbsolutePath
    """Folder on every node that pods may run on."""


class PersistentVolumeClaimSource(ApiModel):
    """A folder on a PersistentVolumeClaim, mounted read-only in every P and D pod."""

    claim_name: ObjectName
    """Name of the claim, in the namespace of the PDInference. Pods on several nodes need a fitting access mode."""
    path: RelativePath | None = None
    """Folder of the model within the volume, relative to its root. Default: the root."""


class ModelSource(ApiModel):
    """Where the weights come from: exactly one of the members."""

    hugging_face: HuggingFaceSource | None = None
    """The Hugging Face hub."""
    model_scope: ModelScopeSource | None = None
    """ModelScope."""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    """A PersistentVolumeClaim that holds the model already."""
    image: ImageSource | None = None
    """An OCI image that holds the model."""
    host_path: HostPathSource | None = None
    """A folder of the node."""
    path: AbsolutePath | None = None
    """Absolute path of a folder that the engine image already contains."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="[has(self.huggingFace), has(self.modelScope), has(self.persistentVolumeClaim), has(self.image), "
            "has(self.hostPath), has(self.path)].filter(x, x).size() == 1",
            holds=lambda s: len(s.model_fields_set - {n for n in s.model_fields_set if getattr(s, n) is None}) == 1,
            message="Set exactly one of huggingFace, modelScope, persistentVolumeClaim, image, hostPath and path.",
        ),
    )

    @property
    def hub(self) -> HuggingFaceSource | ModelScopeSource | None:
        """The repository on a hub, if that is where the model is."""
        return self.hugging_face or self.model_scope

    @property
    def volume(self) -> str | None:
        """Which member has a volume with the model, that somebody else filled; None where there is no volume."""
        members = {
            "persistentVolumeClaim": self.persistent_volume_claim,
            "image": self.image,
            "hostPath": self.host_path,
        }
        return next((name for name, member in members.items() if member is not None), None)

    def identity(self) -> str:
        """Tells one model from another: what is known of one does not hold for the other."""
        where = self.model_dump(mode="json", exclude={"hugging_face": {"token_secret"}}, exclude_none=True)
        return hashlib.sha256(json.dumps(where, sort_keys=True).encode()).hexdigest()[:12]


class Architecture(ApiModel):
    """What is known of the model, for the memory plan. Pods get of it only more time to start, with large weights."""

    config: Annotated[
        dict[str, Any],
        Field(max_length=128),
        AsJson,
        AfterValidator(_short),
        WithJsonSchema({"type": "object", "maxProperties": 128, "x-kubernetes-preserve-unknown-fields": True}),
    ]
    """The members of the model's config.json, for example `num_hidden_layers: 32`."""
    weights_bytes: Annotated[int, Field(ge=1, le=2**50)] | None = None
    """Bytes of all weights as vLLM loads them. Default: computed from config, for architectures that are known."""


class CacheClaim(ApiModel):
    """A PersistentVolumeClaim for models; any number of PDInferences may share it."""

    claim_name: ObjectName
    """Name of the claim, in the namespace of the PDInference. Pods on several nodes need an access mode that allows
    it."""


class ModelCache(ApiModel):
    """Where a model from a hub is kept: exactly one of the members."""

    persistent_volume_claim: CacheClaim | None = None
    """A claim that exists. A Job downloads the model once; P and D start when it is there, and mount it read-only."""
    host_path: HostPathSource | None = None
    """A folder of each node that user 65532 may write to: the first pod on a node downloads, the others use that. Needs
    an entry of `allowedHostPaths` for this very folder, with `readOnly: false`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.persistentVolumeClaim) != has(self.hostPath)",
            holds=lambda c: (c.persistent_volume_claim is None) != (c.host_path is None),
            message="Set exactly one of persistentVolumeClaim and hostPath.",
        ),
    )
