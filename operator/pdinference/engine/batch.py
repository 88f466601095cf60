"""The command of a batch runner: `pdinference batch run`."""

from dataclasses import dataclass

from pdinference.api.names import RUNNER_METRICS_PORT
from pdinference.api.v1alpha1 import PDBatch
from pdinference.engine.arguments import to_argv
from pdinference.engine.command import Command, literal

INPUT_MOUNT = "/input"
OUTPUT_MOUNT = "/output"
CONFIG_MAP_FILE = "input.jsonl"
REPORT_FILE = "/dev/termination-log"


@dataclass(frozen=True, slots=True)
class Service:
    """The PDInference that a batch asks.

    Attributes:
        url: Where it answers, less `/v1/...`.
        model: The name that it serves.
    """

    url: str
    model: str


def runner_command(batch: PDBatch, service: Service) -> Command:
    """What the runner's container runs."""
    spec = batch.spec
    claim = spec.input.persistent_volume_claim
    folder = spec.output.persistent_volume_claim.path or batch.metadata.name
    options = {
        "input": f"{INPUT_MOUNT}/{claim.path if claim else CONFIG_MAP_FILE}",
        "output": f"{OUTPUT_MOUNT}/{folder}",
        "url": service.url,
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
