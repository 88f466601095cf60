"""`spec.model.source`, `spec.model.cache` and `spec.model.architecture`: origin, storage and facts of the weights.

Tests: tests/api/test_validation.py, tests/manifests/test_model_preparation.py
"""

import hashlib
import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from pdinference.api.v1alpha1.base import ApiModel, AsJson, DataKey, ImageReference, Matches, ObjectName, Rule

# Segments start with a letter, digit or underscore. This excludes options (`-x`), `..` and absolute paths.
SEGMENT = "[A-Za-z0-9_][A-Za-z0-9_.-]*"
_PATH_RULES = "each part starts with a letter, digit or underscore, followed by these, dots or dashes"


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
        f"Write a path within the volume without a leading slash, for example llama/8b; {_PATH_RULES}.",
    ),
]
AbsolutePath = Annotated[
    str,
    Field(max_length=1024),
    Matches(f"^(/{SEGMENT})+$", f"Write an absolute path, for example /models/llama; {_PATH_RULES}."),
]


_CONFIG_LIMIT = 65536
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
"""Keys of a Secret for a bucket, as AWS's clients name the variables."""


def _short(config: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(config)) > _CONFIG_LIMIT:
        raise ValueError(f"Use at most {_CONFIG_LIMIT} characters. The memory plan needs only sizes and counts.")
    return config


class SecretKey(ApiModel):
    """One key of a Secret in the namespace of the PDInference. Only the kubelet reads it, never the operator."""

    name: ObjectName
    """Name of the Secret."""
    key: DataKey
    """Key within the Secret."""


class HuggingFaceSource(ApiModel):
    """A repository on the Hugging Face Hub."""

    repository: Repository
    """Repository as `owner/name`, for example `meta-llama/Llama-3.1-8B-Instruct`."""
    revision: Revision = "main"
    """Branch, tag or commit. Pin a commit to make all pods serve the same weights."""
    token_secret: SecretKey | None = None
    """Secret key with the access token for gated and private repositories."""


class ModelScopeSource(ApiModel):
    """A repository on ModelScope."""

    repository: Repository
    """Repository as `owner/name`, for example `Qwen/Qwen2.5-7B-Instruct`."""
    revision: Revision = "master"
    """Branch, tag or commit. Pin a commit to make all pods serve the same weights."""


_LABEL = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"


class BucketSource(ApiModel):
    """A folder in a bucket of S3 or of a server with its API.

    With spec.model.cache, it is downloaded once. Without it, each P and D pod streams the weights at start.
    """

    uri: Annotated[
        str,
        Field(max_length=512),
        Matches(
            rf"^s3://{_LABEL}(\.{_LABEL})*(/{SEGMENT})*$",
            f"Write the bucket and the folder of the model, for example s3://models/llama-8b; {_PATH_RULES}.",
        ),
    ]
    """The folder of the model, for example `s3://models/llama-8b`."""
    endpoint: (
        Annotated[
            str,
            Field(max_length=260),
            Matches(
                f"^https?://[A-Za-z0-9]([A-Za-z0-9.-]{{0,251}}[A-Za-z0-9])?(:{_PORT})?$",
                "Write a URL without a path, for example https://minio.example:9000.",
            ),
        ]
        | None
    ) = None
    """URL of the server. Default: AWS."""
    region: Annotated[
        str, Field(max_length=63), Matches("^[a-z0-9-]+$", "Write a region, for example eu-central-1.")
    ] = "us-east-1"
    """Region of the bucket. Many servers accept any."""
    secret_name: ObjectName | None = None
    """Secret with the keys AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Default: requests are not signed, as for public
    buckets."""

    @property
    def in_host(self) -> bool:
        """Whether the bucket's name is part of the host's name."""
        return is_in_host(bucket_and_folder(self.uri)[0], self.endpoint)

    @property
    def signed(self) -> tuple[SecretKey, ...]:
        """The keys of the Secret. The variables with their values have the same names."""
        name = self.secret_name
        return tuple(SecretKey(name=name, key=key) for key in CREDENTIALS) if name else ()


def bucket_and_folder(uri: str) -> tuple[str, str]:
    """The name of the bucket, and the path of the folder within it; empty for the bucket itself."""
    bucket, _, folder = uri.removeprefix("s3://").partition("/")
    return bucket, folder


def configures_bucket(variable: str) -> bool:
    """Whether a variable says where a bucket is or who asks. A certificate authority may be named beside it."""
    return variable.startswith(("AWS_", "RUNAI_STREAMER_S3_")) and variable != "AWS_CA_BUNDLE"


def is_in_host(bucket: str, endpoint: str | None) -> bool:
    """Whether the name of a bucket is part of the host's name. The certificates of AWS cover no name with a dot."""
    return endpoint is None and "." not in bucket


class ImageSource(ApiModel):
    """An OCI image or artifact that the kubelet mounts as a read-only volume (Kubernetes feature ImageVolume)."""

    reference: ImageReference
    """Image with a tag or, preferably, a digest."""
    path: RelativePath | None = None
    """Path of the model within the image. Default: the root."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the kubelet pulls the image."""


class HostPathSource(ApiModel):
    """A folder on the node. The chart value `allowedHostPaths` must allow it."""

    path: AbsolutePath
    """Path of the folder. It must exist on every node that pods may run on."""


class PersistentVolumeClaimSource(ApiModel):
    """A folder on a PersistentVolumeClaim, mounted read-only in every P and D pod."""

    claim_name: ObjectName
    """Name of the claim. If pods run on several nodes, its access mode must allow that."""
    path: RelativePath | None = None
    """Path of the model within the volume. Default: the root."""


class ModelSource(ApiModel):
    """Where the weights come from. Set exactly one member."""

    hugging_face: HuggingFaceSource | None = None
    """A repository on the Hugging Face Hub. Without spec.model.cache, each pod downloads it at start."""
    model_scope: ModelScopeSource | None = None
    """A repository on ModelScope. Without spec.model.cache, each pod downloads it at start."""
    bucket: BucketSource | None = None
    """A folder in a bucket of S3 or of a server with its API."""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    """A PersistentVolumeClaim that already holds the model."""
    image: ImageSource | None = None
    """An OCI image with the model (Kubernetes 1.35 or later)."""
    host_path: HostPathSource | None = None
    """A folder on the node."""
    path: AbsolutePath | None = None
    """Absolute path of a folder in the engine image."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="[has(self.huggingFace), has(self.modelScope), has(self.bucket), has(self.persistentVolumeClaim), "
            "has(self.image), has(self.hostPath), has(self.path)].filter(x, x).size() == 1",
            holds=lambda s: len(s.model_fields_set - {n for n in s.model_fields_set if getattr(s, n) is None}) == 1,
            message="Set exactly one of huggingFace, modelScope, bucket, persistentVolumeClaim, image, hostPath and "
            "path.",
        ),
    )

    @property
    def hub(self) -> HuggingFaceSource | ModelScopeSource | None:
        """The repository on a hub; None for other sources."""
        return self.hugging_face or self.model_scope

    @property
    def volume(self) -> str | None:
        """The member that names a volume with the model; None if the source is not a volume."""
        members = {
            "persistentVolumeClaim": self.persistent_volume_claim,
            "image": self.image,
            "hostPath": self.host_path,
        }
        return next((name for name, member in members.items() if member is not None), None)

    def identity(self) -> str:
        """Digest that identifies the source, so that facts of one model are not used for another."""
        # Servers other than AWS have one region, and accept any name of it.
        of_bucket = {"secret_name", "region"} if self.bucket and self.bucket.endpoint else {"secret_name"}
        left_out = {"hugging_face": {"token_secret"}, "bucket": of_bucket}
        where = self.model_dump(mode="json", exclude=left_out, exclude_none=True)
        return hashlib.sha256(json.dumps(where, sort_keys=True).encode()).hexdigest()[:12]


ModelConfig = Annotated[
    dict[str, Any],
    Field(max_length=128),
    AsJson,
    AfterValidator(_short),
    WithJsonSchema({"type": "object", "maxProperties": 128, "x-kubernetes-preserve-unknown-fields": True}),
]
"""Members of a config.json."""


class Architecture(ApiModel):
    """Facts about the model for the memory plan. In pods, weightsBytes only extends the time to start."""

    config: ModelConfig
    """Members of the model's config.json, for example `num_hidden_layers: 32`."""
    draft_config: ModelConfig | None = None
    """The same of the draft model that `speculative-config` in args names."""
    weights_bytes: Annotated[int, Field(ge=1, le=2**53)] | None = None
    """Size of all weights in bytes, as vLLM loads them. Default: computed from config for known architectures."""


class CacheClaim(ApiModel):
    """A PersistentVolumeClaim for models. Several PDInferences may share it."""

    claim_name: ObjectName
    """Name of the claim. If pods run on several nodes, its access mode must allow that."""


class ModelCache(ApiModel):
    """Where a model from a hub or a bucket is stored. Set exactly one member."""

    persistent_volume_claim: CacheClaim | None = None
    """An existing claim. A Job downloads the model once. P and D then start and mount the claim read-only."""
    host_path: HostPathSource | None = None
    """A folder on each node that user 65532 can write to. The first pod on a node downloads the model, and the other
    pods reuse it. The chart value `allowedHostPaths` must list it with `readOnly: false`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.persistentVolumeClaim) != has(self.hostPath)",
            holds=lambda c: (c.persistent_volume_claim is None) != (c.host_path is None),
            message="Set exactly one of persistentVolumeClaim and hostPath.",
        ),
    )
