"""The bundle of a release for the Operator Lifecycle Manager (OLM), made from what the chart renders.

A bundle has the CustomResourceDefinitions, a ClusterServiceVersion with Deployment, rights and webhooks, and the few
other objects that OLM takes. OLM makes the ServiceAccount, the certificate of webhooks and metrics API, their Service
and what refers to it. The ValidatingAdmissionPolicies, which it cannot have, are a file of their own.
docs/olm.md has what else differs from the chart.

`make release-files` writes both into dist/release/, and `make release` pushes the bundle as an image.
"""

import gzip
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import yaml

from e2e import charts, listing
from e2e.cluster import build
from pdinference.admission.webhook import WEBHOOK_RULES
from pdinference.api import names
from pdinference.api.v1alpha1.engine import Engine
from pdinference.loadmetrics.metrics_api.group import GROUP, VERSION

IMAGE: Final = "operator-bundle"
"""Its name in a registry."""
POLICIES: Final = "olm-admission-policy.yaml"
"""The file with the ValidatingAdmissionPolicies."""
_NAME: Final = charts.CHART.name
_NAMESPACE_VARIABLE: Final = "POD_NAMESPACE"
_CHART_CERTIFICATES: Final = "tls"
"""The volume in which cert-manager's certificates are mounted."""
_OLM_CERTIFICATES: Final = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108, where OLM mounts its own
_READER: Final = "extension-apiserver-authentication-reader"
"""A Role of Kubernetes that OLM binds by itself."""
_HELM_LABELS: Final = ("app.kubernetes.io/managed-by", "helm.sh/chart")
_AS_THEY_ARE: Final = frozenset({"ConfigMap", "PodDisruptionBudget", "ClusterRole", "Service"})
_IN_CSV: Final = frozenset(
    {"Deployment", "ClusterRoleBinding", "Role", "RoleBinding"}
    | {"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "APIService"}
)
_MADE_BY_OLM: Final = frozenset({"ServiceAccount", "Certificate", "Issuer"})
_POLICY_KINDS: Final = frozenset({"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"})
_VALUES: Final = {
    "fullnameOverride": _NAME,
    # A certificate that another component renews.
    "webhook": {"certManager": {"enabled": True}},
    # OLM takes it in its newest releases only.
    "networkPolicy": {"enabled": False},
    "crds": {"install": False},
    "extraEnv": [{"name": _NAMESPACE_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
}
_CHANNEL: Final = "candidate"
"""By the naming that OLM recommends: a release before 1.0."""
_KEY: Final = "operators.operatorframework.io.bundle"
LABELS: Final = {
    f"{_KEY}.mediatype.v1": "registry+v1",
    f"{_KEY}.manifests.v1": "manifests/",
    f"{_KEY}.metadata.v1": "metadata/",
    f"{_KEY}.package.v1": _NAME,
    f"{_KEY}.channels.v1": _CHANNEL,
    f"{_KEY}.channel.default.v1": _CHANNEL,
}
"""Of the image, and the annotations in the bundle."""
_DESCRIPTION: Final = f"""\
Serves large language models with vLLM, split into prefill (P) and decode (D), with a router in front of them.

Apply `{POLICIES}` of the release, too: OLM has no admission policies, and these keep the operator's account to what it
creates. The installation policy is the ConfigMap `{_NAME}-policy`. For one that upgrades keep, name a ConfigMap of your
own in `spec.config.volumes` of the Subscription, as the volume `policy`.
"""

Json = dict[str, Any]


def write(folder: Path, chart: Path, number: str) -> None:
    """Write the packed bundle and the file with the admission policies.

    Args:
        folder: For both files.
        chart: The chart, whose values name the images.
        number: The version.

    Raises:
        ReleaseError: The chart renders an object that a bundle cannot have.
        ClusterError: Helm failed.
    """
    objects = _rendered(chart)
    policies = [each for each in objects if each["kind"] in _POLICY_KINDS]
    (folder / POLICIES).write_text(yaml.safe_dump_all(policies, sort_keys=False), encoding="utf-8")
    packed(folder, number).write_bytes(_archive(_files(objects, charts.containers(chart), number)))


def packed(folder: Path, number: str) -> Path:
    """The archive with the bundle, which is also the layer of its image."""
    return folder / f"{_NAME}-bundle-{number}.tgz"


def _rendered(chart: Path) -> list[Json]:
    """The chart's objects, without what says that Helm manages them."""
    text = charts.rendered(chart, values=json.dumps(_VALUES))
    objects = [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]
    for each in objects:
        for label in _HELM_LABELS:
            each["metadata"]["labels"].pop(label, None)
    return objects


def _files(objects: Sequence[Json], images: Sequence[str], number: str) -> dict[str, str]:
    """The text of each file of the bundle.

    Raises:
        ReleaseError: An object has no place in a bundle.
    """
    if strange := {each["kind"] for each in objects} - _AS_THEY_ARE - _IN_CSV - _MADE_BY_OLM - _POLICY_KINDS:
        raise charts.ReleaseError(
            f"A bundle for OLM cannot have the {', '.join(sorted(strange))} of the chart: say in e2e/olm.py what "
            "becomes of it."
        )
    kept = [each for each in objects if each["kind"] in _AS_THEY_ARE and not _of_the_account(each, objects)]
    documents = {
        f"manifests/{_NAME}.clusterserviceversion.yaml": _csv(objects, images, number),
        **{f"manifests/{kind.crd}.crd.yaml": kind.definition for kind in listing.kinds()},
        **{_file(each): _without_namespace(each) for each in kept if not _serves_tls(each)},
        "metadata/annotations.yaml": {"annotations": LABELS},
    }
    return {path: yaml.safe_dump(document, sort_keys=False) for path, document in documents.items()}


def _file(item: Json) -> str:
    return f"manifests/{item['metadata']['name']}.{item['kind'].lower()}.yaml"


def _without_namespace(item: Json) -> Json:
    metadata = {name: value for name, value in item["metadata"].items() if name != "namespace"}
    return {**item, "metadata": metadata}


def _serves_tls(item: Json) -> bool:
    return bool(item["kind"] == "Service" and any(port["name"] == "https" for port in item["spec"]["ports"]))


def _of_kind(objects: Sequence[Json], kind: str) -> list[Json]:
    return [each for each in objects if each["kind"] == kind]


def _deployment(objects: Sequence[Json]) -> Json:
    (deployment,) = _of_kind(objects, "Deployment")
    return deployment


def _csv(objects: Sequence[Json], images: Sequence[str], number: str) -> Json:
    chart = charts.metadata()
    notes = chart["annotations"]
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{_NAME}.v{number}",
            "namespace": "placeholder",
            "annotations": {
                "alm-examples": json.dumps(listing.examples()),
                "capabilities": notes["artifacthub.io/operatorCapabilities"],
                "categories": "AI/Machine Learning",
                "containerImage": _deployment(objects)["spec"]["template"]["spec"]["containers"][0]["image"],
                "description": chart["description"],
                "repository": chart["home"],
                "operatorframework.io/suggested-namespace": charts.NAMESPACE,
                "operators.operatorframework.io/internal-objects": json.dumps(_internal()),
            },
        },
        "spec": {
            "displayName": "pdinference",
            "description": _DESCRIPTION,
            "version": number,
            "minKubeVersion": f"{build.OLDEST}.0",
            "maturity": "alpha",
            "keywords": chart["keywords"],
            "maintainers": chart["maintainers"],
            "provider": {"name": "pdinference", "url": chart["home"]},
            "links": yaml.safe_load(notes["artifacthub.io/links"]),
            # Another operator of the same cluster would serve the same resources.
            "installModes": [
                {"type": mode, "supported": mode == "AllNamespaces"}
                for mode in ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
            ],
            "install": {"strategy": "deployment", "spec": _strategy(objects)},
            "customresourcedefinitions": {"owned": [_owned(kind) for kind in listing.kinds()]},
            "apiservicedefinitions": {"owned": [_metrics_api()]},
            "webhookdefinitions": list(_webhooks(objects)),
            "relatedImages": _related(images),
        },
    }


def _internal() -> list[str]:
    """The kinds that users do not create."""
    created = {example["kind"] for example in listing.examples()}
    return [kind.crd for kind in listing.kinds() if kind.name not in created]


def _owned(kind: listing.Kind) -> Json:
    return {
        "name": kind.crd, "version": kind.version, "kind": kind.name, "displayName": kind.name,
        "description": kind.description,
    }  # fmt: skip


def _related(images: Sequence[str]) -> list[Json]:
    """The images that a mirror needs."""
    found = {"engine": Engine.model_fields["image"].default}
    found |= {"operator" if number == 0 else f"operator-{number}": image for number, image in enumerate(images)}
    return [{"name": name, "image": image} for name, image in found.items()]


def _strategy(objects: Sequence[Json]) -> Json:
    deployment = _deployment(objects)
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    rights = {
        "clusterPermissions": [rule for role in _bound(objects, "ClusterRole") for rule in role["rules"]],
        # With AllNamespaces, OLM makes a ClusterRole of these, too.
        "permissions": [rule for role in _bound(objects, "Role") for rule in role["rules"]],
    }
    permissions = {
        name: [{"serviceAccountName": account, "rules": [rule for rule in rules if not _on_webhooks(rule)]}]
        for name, rules in rights.items()
    }
    labels = deployment["metadata"]["labels"]
    return {**permissions, "deployments": [{"name": _NAME, "label": labels, "spec": _adapted(deployment["spec"])}]}


def _bound(objects: Sequence[Json], kind: str) -> Iterator[Json]:
    """The roles of a kind that the operator's account has. All bindings of the chart are for it."""
    roles = {role["metadata"]["name"]: role for role in _of_kind(objects, kind)}
    for binding in _of_kind(objects, f"{kind}Binding"):
        if binding["roleRef"]["name"] != _READER:
            yield roles[binding["roleRef"]["name"]]


def _of_the_account(item: Json, objects: Sequence[Json]) -> bool:
    """Whether its rules are in the ClusterServiceVersion."""
    return item["kind"] == "ClusterRole" and item in list(_bound(objects, "ClusterRole"))


def _on_webhooks(rule: Json) -> bool:
    """The operator completes webhook configurations of the chart; those of OLM are complete."""
    return "admissionregistration.k8s.io" in rule["apiGroups"]


def _adapted(spec: Json) -> Json:
    """The Deployment for OLM's certificate, and for the namespace in which it is installed."""
    template = spec["template"]
    pod = template["spec"]
    (container,) = pod["containers"]
    arguments = [_argument(each) for each in container["args"] if not each.startswith("--webhook-configuration=")]
    changed = {**container, "args": arguments, "volumeMounts": _others(container["volumeMounts"])}
    return {
        **spec,
        "template": {**template, "spec": {**pod, "containers": [changed], "volumes": _others(pod["volumes"])}},
    }


def _argument(text: str) -> str:
    if text.startswith("--tls-folder="):
        return f"--tls-folder={_OLM_CERTIFICATES}"
    # The Service that OLM makes is called after the Deployment.
    return text.replace(f"{_NAME}-tls", f"{_NAME}-service").replace(charts.NAMESPACE, f"$({_NAMESPACE_VARIABLE})")


def _others(volumes: Sequence[Json]) -> list[Json]:
    return [each for each in volumes if each["name"] != _CHART_CERTIFICATES]


def _metrics_api() -> Json:
    return {
        "name": "externalmetrics", "group": GROUP, "version": VERSION, "kind": "ExternalMetricValueList",
        "displayName": "External metrics", "description": "The load of vLLM, by which HorizontalPodAutoscalers scale.",
        "deploymentName": _NAME, "containerPort": names.OPERATOR_TLS_PORT,
    }  # fmt: skip


def _webhooks(objects: Sequence[Json]) -> Iterator[Json]:
    """OLM has no match conditions, so labels and finalizers call the webhooks, too. They accept what keeps its spec."""
    same = ("admissionReviewVersions", "failurePolicy", "matchPolicy", "reinvocationPolicy", "sideEffects")
    for kind in ("Validating", "Mutating"):
        (configuration,) = _of_kind(objects, f"{kind}WebhookConfiguration")
        (webhook,) = configuration["webhooks"]
        path = webhook["clientConfig"]["service"]["path"]
        yield {
            "type": f"{kind}AdmissionWebhook",
            "generateName": f"{path.removeprefix('/')}.{names.GROUP}",
            "deploymentName": _NAME,
            "containerPort": webhook["clientConfig"]["service"]["port"],
            "targetPort": names.OPERATOR_TLS_PORT,
            "rules": [deepcopy(WEBHOOK_RULES)],
            "timeoutSeconds": webhook["timeoutSeconds"],
            "webhookPath": path,
            **{name: webhook[name] for name in same if name in webhook},
        }


def _archive(files: Mapping[str, str]) -> bytes:
    """A packed archive that is the same for the same files."""
    packed_files = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed_files, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for path, text in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size = len(text.encode())
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed_files.getvalue()
