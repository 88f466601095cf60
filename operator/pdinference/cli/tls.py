"""Options of `pdinference run` about what the API server calls."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from pdinference.api import names


def tls_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the command gets them together, as `tls`."""

    @click.option(
        "--tls-secret",
        default="",
        help="Secret in --lease-namespace for a CA and certificate of the operator's own; it has to exist.  "
        "[default: serve no HTTPS]",
    )
    @click.option(
        "--tls-folder",
        type=click.Path(path_type=Path),
        help="Folder with tls.crt and tls.key that somebody else renews, instead of --tls-secret.",
    )
    @click.option(
        "--tls-host",
        "tls_hosts",
        multiple=True,
        help="Name or address under which the API server calls; repeatable; with --tls-secret.",
    )
    @click.option(
        "--tls-port",
        type=click.IntRange(0, 65535),
        default=names.OPERATOR_TLS_PORT,
        show_default=True,
        help="Port of HTTPS; 0 takes a free one.",
    )
    @click.option(
        "--tls-check-seconds",
        type=click.FloatRange(0, min_open=True),
        default=15,
        show_default=True,
        help="How often certificate and CA bundle are looked at.",
    )
    @click.option(
        "--tls-drain-seconds",
        type=click.FloatRange(0),
        default=5,
        show_default=True,
        help="How long calls are still answered after SIGTERM.",
    )
    @click.option(
        "--webhook-configuration",
        "tls_webhook",
        default="",
        help="Name of the webhook configurations (validating and mutating) that get rules and CA bundle.",
    )
    @click.option(
        "--webhook-client-certificate",
        "tls_client_certificate",
        is_flag=True,
        help="Answer the webhook's calls only with a client certificate, which the API server has to be configured to "
        "present.  [default: answer everybody]",
    )
    @click.option(
        "--webhook-client-ca",
        "tls_client_ca",
        type=click.Path(path_type=Path),
        help="File with the CAs of that certificate.  [default: the CA of the API server's front proxy, as published]",
    )
    @click.option(
        "--webhook-client-name",
        "tls_client_names",
        multiple=True,
        help="Common name that the certificate may have; repeatable.  [default: those that the API server publishes of "
        "its front proxy; with --webhook-client-ca: any]",
    )
    @wraps(command)
    def with_tls(**options: Any) -> None:
        own = {name: value for name, value in options.items() if name.startswith("tls_")}
        rest = {name: value for name, value in options.items() if name not in own}
        command(tls={name.removeprefix("tls_"): value for name, value in own.items()}, **rest)

    return with_tls
