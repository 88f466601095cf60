"""The command of a batch runner: `pdinference batch run`.

Tests: tests/manifests/test_batch.py
"""

from dataclasses import dataclass

from pdinference.api.names import RUNNER_METRICS_PORT
from pdinference.api.v1alpha1 import PDBatch
from pdinference.api.v1alpha1.batch import ClaimFolder
from pdinference.engine.arguments import to_argv
from pdinference.engine.command import Command, literal

INPUT_MOUNT = "/input"
OUTPUT_MOUNT = "/output"
KEY_MOUNT = "/api-key"
CERTIFICATE_MOUNT = "/certificate"
CERTIFICATE_FILE = "tls.crt"
CONFIG_MAP_FILE = "input.jsonl"
REPORT_FILE = "/dev/termination-log"
ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "1048576"}
"""Fixed threshold of glibc's malloc. By default it grows with large lines, whose memory is then not returned."""
OUTPUT, ERRORS = "output.jsonl", "errors.jsonl"
IDENTITY = "batch.json"
"""File with the identity of the batch."""
SUSPECTS = "suspects.jsonl"
"""File with the requests during which the service stopped. There is none while it has not."""
WRITTEN = (OUTPUT, ERRORS, IDENTITY, SUSPECTS)
"""Files in the output folder."""


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """How clients inside the cluster reach a PDInference.

    Attributes:
        url: Base URL without `/v1/...`.
        model: Served model name.
        tls_secret: Secret with the certificate; empty with HTTP.
        keys_secret: Secret with the API keys; empty if requests need none.
        pull_secrets: Secrets for the registry of the router's image, which is that of the runner's.
    """

    url: str
    model: str
    tls_secret: str = ""
    keys_secret: str = ""
    pull_secrets: tuple[str, ...] = ()


def output_folder(batch: PDBatch, target: ClaimFolder) -> str:
    """Path of the output folder within the volume."""
    return target.path or batch.metadata.name


def runner_command(batch: PDBatch, service: ServiceAccess) -> Command:
    """The command of the runner's container."""
    spec = batch.spec
    claim = spec.input.persistent_volume_claim
    options = {
        "input": f"{INPUT_MOUNT}/{claim.path if claim else CONFIG_MAP_FILE}",
        "input-root": INPUT_MOUNT,
        **_output(batch),
        "url": service.url,
        **({"api-key-file": f"{KEY_MOUNT}/{spec.api_key_name}"} if service.keys_secret else {}),
        **({"certificate-file": f"{CERTIFICATE_MOUNT}/{CERTIFICATE_FILE}"} if service.tls_secret else {}),
        "default-model": service.model,
        **({"model": spec.model} if spec.model else {}),
        "concurrency": spec.concurrency,
        "max-retries": spec.max_retries,
        "request-timeout": spec.request_timeout_seconds,
        "metrics-port": RUNNER_METRICS_PORT,
        "report": REPORT_FILE,
    }
    arguments = tuple(literal(argument) for argument in to_argv(options))
    return Command(program=("pdinference", "batch", "run"), arguments=arguments)


def _output(batch: PDBatch) -> dict[str, str]:
    output = batch.spec.output
    if output.persistent_volume_claim is not None:
        folder = output_folder(batch, output.persistent_volume_claim)
        return {"output": f"{OUTPUT_MOUNT}/{folder}", "output-root": OUTPUT_MOUNT}
    name = output.config_map.name if output.config_map else ""
    return {"output-config-map": f"{batch.metadata.namespace}/{name}"}
