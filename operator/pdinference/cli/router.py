"""`pdinference router run`: the request path of one revision."""

import asyncio
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import click
import uvloop

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.api.v1alpha1.defaults import BATCHED_TOKENS_OF_BOTH
from pdinference.api.v1alpha1.roles.role import MOST_RANKS
from pdinference.api.v1alpha1.router import Disaggregation, Priority, RouterPolicy, WhenNoPrefill
from pdinference.api.v1alpha1.transfer import VerificationMode
from pdinference.cli.option_types import NumberRange
from pdinference.engine.connectors.handover import WHOLE_REQUESTS
from pdinference.engine.connectors.registry import HANDOVERS
from pdinference.router.choice import policies
from pdinference.router.dispatch import Rules
from pdinference.router.fair_shares import FairShares, Standing
from pdinference.router.keys import KeyLimits, Keys
from pdinference.router.memory import limits_of, memory_limit
from pdinference.router.models import Models
from pdinference.router.pieces import chain_of
from pdinference.router.pod import Observed, by_rank
from pdinference.router.pods import Pods
from pdinference.router.run import Settings, run
from pdinference.router.tracing import exporting
from pdinference.router.ways import WayObjectives


@click.group("router")
def router_command() -> None:
    """The router in front of P and D."""


@router_command.command("run")
@click.option("--host", default="0.0.0.0", show_default=True, help="Address to listen on.")  # noqa: S104 - a pod's
@click.option("--port", type=click.IntRange(0, 65535), default=names.ROUTER_PORT, show_default=True)
@click.option(
    "--state-port",
    type=click.IntRange(0, 65535),
    default=names.ROUTER_STATE_PORT,
    show_default=True,
    help="Port of /metrics, /healthz and /readyz.",
)
@click.option("--namespace", default="", help="Namespace of the PDInference whose pods are watched.")
@click.option("--name", default="", help="Name of the PDInference.")
@click.option("--revision", default="", help="Revision whose pods get the requests.")
@click.option("--parameter", multiple=True, metavar="HOST:PORT", help="A P server, in place of watched pods.")
@click.option("--decode", multiple=True, metavar="HOST:PORT", help="A D server, in place of watched pods.")
@click.option(
    "--parameter-ranks",
    type=click.IntRange(1, MOST_RANKS),
    default=1,
    show_default=True,
    help="Data-parallel ranks of each P. The router chooses the rank of each request.",
)
@click.option(
    "--decode-ranks", type=click.IntRange(1, MOST_RANKS), default=1, show_default=True, help="The same of each D."
)
@click.option(
    "--handover",
    type=click.Choice((*HANDOVERS, WHOLE_REQUESTS)),
    default="nixl",
    show_default=True,
    help="What goes from P to D with a request. none: there is no P, and D gets whole requests.",
)
@click.option(
    "--verification",
    type=click.Choice(get_args(VerificationMode)),
    default="Required",
    show_default=True,
    help="Whether the router becomes ready only after prompts of its own went through P and D with right answers.",
)
@click.option("--policy", type=click.Choice(get_args(RouterPolicy)), default="cache_aware", show_default=True)
@click.option(
    "--when-no-prefill",
    type=click.Choice(get_args(WhenNoPrefill)),
    default="Serve",
    show_default=True,
    help="What happens to requests while no P pod computes prompts: D computes them, they wait, or they fail.",
)
@click.option("--max-wait-seconds", type=NumberRange(0, min_open=True), default=60, show_default=True)
@click.option("--max-queued-requests", type=click.IntRange(1), default=100, show_default=True)
@click.option(
    "--migration/--no-migration",
    default=False,
    show_default=True,
    help="Continue a stream that loses its D pod at another one, where that is exact. Each chunk is parsed.",
)
@click.option(
    "--disaggregation",
    type=click.Choice(get_args(Disaggregation)),
    default="Always",
    show_default=True,
    help="Whether each request goes through P and D, or the way that costs least by what was learned.",
)
@click.option(
    "--ttft-objective",
    type=NumberRange(0, min_open=True),
    default=math.inf,
    help="Seconds to the first token that ways should keep (--disaggregation Adaptive). Default: none.",
)
@click.option(
    "--tpot-objective",
    type=NumberRange(0, min_open=True),
    default=math.inf,
    help="Mean seconds between tokens that ways should keep. Default: none.",
)
@click.option(
    "--parameter-step-tokens",
    type=click.IntRange(1),
    default=BATCHED_TOKENS_OF_BOTH,
    show_default=True,
    help="max-num-batched-tokens of P (--disaggregation Adaptive).",
)
@click.option(
    "--decode-step-tokens",
    type=click.IntRange(1),
    default=BATCHED_TOKENS_OF_BOTH,
    show_default=True,
    help="The same of D.",
)
@click.option(
    "--custom-arguments/--no-custom-arguments",
    default=False,
    show_default=True,
    help="Pass on arguments in vllm_xargs that vLLM does not know, for its logits processors.",
)
@click.option(
    "--served-model",
    multiple=True,
    metavar="NAME",
    help="The model, then its adapters: what GET /v1/models lists while no server answers.",
)
@click.option("--max-model-length", type=click.IntRange(1), help="What that list says of the model.")
@click.option("--drain-seconds", type=NumberRange(0), default=300, show_default=True)
@click.option(
    "--api-keys-folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Mounted Secret with a file for each client, with a key on each line. Default: no keys.",
)
@click.option(
    "--api-key-limit",
    multiple=True,
    metavar="NAME=REQUESTS_PER_MINUTE:CONCURRENT_REQUESTS[:TOKENS_PER_MINUTE]",
    help="Limits of a client; an empty number is no limit.",
)
@click.option(
    "--fair-shares/--no-fair-shares",
    default=False,
    show_default=True,
    help="Give clients their places in vLLM's queue, which needs --scheduling-policy=priority there.",
)
@click.option(
    "--standing",
    multiple=True,
    metavar="NAME=PRIORITY:SHARE",
    help="What a client gets when requests wait. Default: Normal:1.",
)
@click.option(
    "--tls-folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Mounted Secret with tls.crt and tls.key for clients. Default: HTTP.",
)
@click.option("--otlp-endpoint", default="", help="URL of an OpenTelemetry collector (OTLP over HTTP). Default: none.")
@click.option("--log-requests/--no-log-requests", default=True, help="Log one line of JSON for each request.")
def run_command(
    *,
    host: str,
    port: int,
    state_port: int,
    namespace: str,
    name: str,
    revision: str,
    parameter: tuple[str, ...],
    decode: tuple[str, ...],
    parameter_ranks: int,
    decode_ranks: int,
    handover: str,
    verification: VerificationMode,
    policy: str,
    when_no_prefill: str,
    max_wait_seconds: float,
    max_queued_requests: int,
    migration: bool,
    disaggregation: Disaggregation,
    ttft_objective: float,
    tpot_objective: float,
    parameter_step_tokens: int,
    decode_step_tokens: int,
    custom_arguments: bool,
    served_model: tuple[str, ...],
    max_model_length: int | None,
    drain_seconds: float,
    api_keys_folder: Path | None,
    api_key_limit: tuple[str, ...],
    fair_shares: bool,
    standing: tuple[str, ...],
    tls_folder: Path | None,
    otlp_endpoint: str,
    log_requests: bool,
) -> None:
    """Send requests to P and D pods until SIGTERM, then finish the running requests."""
    watched = (namespace, name, revision)
    if any(watched) != all(watched) or all(watched) == bool(parameter or decode):
        raise click.UsageError("Set --namespace, --name and --revision, or --parameter and --decode.")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("pdinference.router.access").disabled = not log_requests
    without: WhenNoPrefill = when_no_prefill  # type: ignore[assignment]
    chosen = HANDOVERS.get(handover)
    choices = policies(policy, whole=chosen is None, chain_of=chain_of)
    rules = Rules(
        chosen,
        choices,
        without,
        max_wait_seconds,
        max_queued_requests,
        migration,
        disaggregation,
        WayObjectives(ttft_objective, tpot_objective),
        {Role.PARAMETER: parameter_step_tokens, Role.DECODE: decode_step_tokens},
        custom_arguments,
    )
    keys = None if api_keys_folder is None else Keys(api_keys_folder, dict(map(_key_limits, api_key_limit)))
    spans = exporting(otlp_endpoint) if otlp_endpoint else None
    settings = Settings(
        rules,
        host,
        port,
        state_port,
        drain_seconds,
        limits=limits_of(memory_limit()),
        verification=verification,
        keys=keys,
        fair_shares=FairShares(dict(map(_standing, standing))) if fair_shares else None,
        models=Models(served_model, max_model_length),
        tls_folder=tls_folder,
        spans=spans,
    )

    pods = Pods(roles=rules.roles)
    ranks = {Role.PARAMETER: parameter_ranks, Role.DECODE: decode_ranks}

    async def serve() -> None:
        await run(settings, pods, discover)

    if namespace:
        from pdinference.router.discovery import Discovery  # noqa: PLC0415 - with fixed pods there is no API server

        discover = Discovery(pods, namespace, name, revision, ranks).forever
    else:
        pods.observe(_fixed(parameter, decode, ranks))
        discover = _nothing_to_discover
    uvloop.run(serve())


def _key_limits(text: str) -> tuple[str, KeyLimits]:
    name, _, limits = text.partition("=")
    parts = limits.split(":")
    if not name or len(parts) not in (2, 3) or not all(part.isdecimal() or not part for part in parts):
        raise click.BadParameter(f"{text!r} is not NAME=REQUESTS_PER_MINUTE:CONCURRENT_REQUESTS[:TOKENS_PER_MINUTE]")
    if any(part and not int(part) for part in parts):
        raise click.BadParameter(f"{text!r}: a limit must be at least 1")
    return name, KeyLimits(*(int(part) if part else None for part in parts))


def _standing(text: str) -> tuple[str, Standing]:
    name, _, standing = text.partition("=")
    priority, _, share = standing.partition(":")
    if not name or priority not in {"", *get_args(Priority)} or not ((share.isdecimal() and int(share)) or not share):
        raise click.BadParameter(f"{text!r} is not NAME=PRIORITY:SHARE")
    default = Standing()
    return name, Standing(priority or default.priority, int(share or default.share))  # type: ignore[arg-type]


async def _nothing_to_discover() -> None:
    await asyncio.Event().wait()


def _fixed(parameter: tuple[str, ...], decode: tuple[str, ...], ranks: Mapping[Role, int]) -> dict[str, Observed]:
    roles = dict.fromkeys(parameter, Role.PARAMETER) | dict.fromkeys(decode, Role.DECODE)
    servers = (Observed(address, address, role, address, ready=True) for address, role in roles.items())
    return {rank.uid: rank for server in servers for rank in by_rank(server, ranks[server.role])}
