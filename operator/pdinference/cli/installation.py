"""Options with the settings of the installation, for the operator and for commands without a cluster.

Tests: tests/charts/test_installed.py
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

import click

from pdinference.api import names
from pdinference.api.installation_policy import Policy
from pdinference.cli.policy import policy_option
from pdinference.manifests import KedaSettings, RenderSettings

ResultT = TypeVar("ResultT")
_AUTHENTICATIONS: Final = ("TriggerAuthentication", "ClusterTriggerAuthentication")
_AUTH_MODES: Final = ("bearer", "basic", "tls", "custom", "oauth", "apiKey")


def installation(command: Callable[..., ResultT]) -> Callable[..., ResultT]:
    """Add the options with the settings of the installation."""

    @click.option(
        "--router-image",
        default=names.DEFAULT_ROUTER_IMAGE,
        show_default=True,
        help="Router image of resources without spec.router.image. A change restarts their routers.",
    )
    @click.option(
        "--otlp-endpoint",
        metavar="URL",
        default="",
        help="OpenTelemetry collector for the spans of routers (OTLP over HTTP).  [default: none]",
    )
    @policy_option
    @click.option(
        "--model-image",
        default=names.DEFAULT_MODEL_IMAGE,
        show_default=True,
        help="Image that downloads and checks models. A change restarts P and D pods with a model cache.",
    )
    @click.option(
        "--runner-image",
        default=names.DEFAULT_OPERATOR_IMAGE,
        show_default=True,
        help="Image of batch runners: the operator image.",
    )
    @click.option(
        "--operator-namespace",
        default="",
        help="Namespace of the operator's pods, which NetworkPolicies allow to connect.  [default: none]",
    )
    @click.option(
        "--operator-label", "operator_labels", multiple=True, help="Label key=value of these pods; repeatable."
    )
    @click.option(
        "--prometheus-namespace",
        default="",
        help="Namespace of a Prometheus that scrapes vLLM and router pods, which NetworkPolicies allow.  "
        "[default: none]",
    )
    @click.option(
        "--router-client-namespace",
        "client_namespaces",
        multiple=True,
        help="Namespace whose pods may connect to routers without spec.router.clients, for example of an ingress "
        "controller; repeatable.  [default: none]",
    )
    @click.option(
        "--keda-prometheus",
        metavar="URL",
        default="",
        help="URL of the Prometheus for ScaledObjects of KEDA.  [default: do not use KEDA]",
    )
    @click.option(
        "--keda-authentication",
        metavar="KIND/NAME",
        callback=_authentication,
        help="TriggerAuthentication or ClusterTriggerAuthentication of KEDA for Prometheus.  [default: none]",
    )
    @click.option(
        "--keda-auth-mode",
        "keda_auth_modes",
        type=click.Choice(_AUTH_MODES),
        multiple=True,
        help="Authentication mode for its secrets; repeatable.  [default: a pod identity]",
    )
    @click.option(
        "--batch-config-maps",
        is_flag=True,
        help="The operator may write ConfigMaps, for PDBatches with output.configMap.  [default: it may not]",
    )
    @wraps(command)
    def with_settings(
        *,
        router_image: str,
        otlp_endpoint: str,
        policy: Policy,
        model_image: str,
        runner_image: str,
        operator_namespace: str,
        operator_labels: tuple[str, ...],
        prometheus_namespace: str,
        client_namespaces: tuple[str, ...],
        keda_prometheus: str,
        keda_authentication: tuple[str, str] | None,
        keda_auth_modes: tuple[str, ...],
        batch_config_maps: bool,
        **options: Any,
    ) -> ResultT:
        keda = KedaSettings(keda_prometheus, keda_authentication, keda_auth_modes)
        settings = RenderSettings(
            router_image=router_image,
            otlp_endpoint=otlp_endpoint,
            policy=policy,
            model_image=model_image,
            runner_image=runner_image,
            operator_namespace=operator_namespace,
            operator_labels=tuple(_pair(label) for label in operator_labels),
            prometheus_namespace=prometheus_namespace,
            client_namespaces=client_namespaces,
            keda=keda if keda_prometheus else None,
            batch_config_maps=batch_config_maps,
        )
        return command(settings=settings, **options)

    return with_settings


def _pair(label: str) -> tuple[str, str]:
    key, separator, value = label.partition("=")
    if not separator:
        raise click.BadParameter(f"{label!r} is not key=value", param_hint="--operator-label")
    return key, value


def _authentication(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, str] | None:
    if value is None:
        return None
    kind, _, name = value.partition("/")
    if kind not in _AUTHENTICATIONS or not name:
        raise click.BadParameter(f"write {' or '.join(f'{kind}/NAME' for kind in _AUTHENTICATIONS)}")
    return kind, name
