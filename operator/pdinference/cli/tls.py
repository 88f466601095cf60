"""Options of `pdinference run` for the HTTPS server that the API server calls.

Tests: tests/integration/test_admission.py, tests/integration/test_cert_manager.py
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from pdinference.api import names
from pdinference.cli.option_types import NumberRange


def tls_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options. The command gets them as one argument, `tls`."""

    @click.option(
        "--tls-secret",
        default="",
        help="Existing Secret in --lease-namespace for a self-managed CA and certificate.  [default: serve no HTTPS]",
    )
    @click.option(
        "--tls-folder",
        type=click.Path(path_type=Path),
        help="Folder with tls.crt and tls.key that another component renews, instead of --tls-secret.",
    )
    @click.option(
        "--tls-host",
        "tls_hosts",
        multiple=True,
        help="Host name or address of the server for --tls-secret; repeatable.",
    )
    @click.option(
        "--tls-port",
        type=click.IntRange(0, 65535),
        default=names.OPERATOR_TLS_PORT,
        show_default=True,
        help="Port of HTTPS; 0 selects a free port.",
    )
    @click.option(
        "--tls-check-seconds",
        type=NumberRange(0, min_open=True),
        default=15,
        show_default=True,
        help="Interval of checks of certificate and CA bundle.",
    )
    @click.option(
        "--tls-drain-seconds",
        type=NumberRange(0),
        default=5,
        show_default=True,
        help="Time for calls after SIGTERM.",
    )
    @click.option(
        "--webhook-configuration",
        "tls_webhook",
        default="",
        help="Name of the webhook configurations (validating and mutating) to complete with rules and CA bundle.",
    )
    @click.option(
        "--webhook-client-certificate",
        "tls_client_certificate",
        is_flag=True,
        help="Require a client certificate for webhook calls. The API server must be configured to present one.  "
        "[default: accept all callers]",
    )
    @click.option(
        "--webhook-client-ca",
        "tls_client_ca",
        type=click.Path(path_type=Path),
        help="File with the CAs of that certificate.  [default: the published CA of the API server's front proxy]",
    )
    @click.option(
        "--webhook-client-name",
        "tls_client_names",
        multiple=True,
        help="Allowed common name of the certificate; repeatable.  [default: the published names of the API server's "
        "front proxy; with --webhook-client-ca: any]",
    )
    @wraps(command)
    def with_tls(**options: Any) -> None:
        own = {name: value for name, value in options.items() if name.startswith("tls_")}
        rest = {name: value for name, value in options.items() if name not in own}
        command(tls={name.removeprefix("tls_"): value for name, value in own.items()}, **rest)

    return with_tls
