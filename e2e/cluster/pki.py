"""Certificates, keys and tokens of one cluster, made once and kept as long as the cluster."""

import base64
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

import yaml

from e2e.cluster.commands import Word, run
from e2e.cluster.files import write_atomically
from e2e.cluster.spec import API_SERVICE_ADDRESS, ClusterSpec

_DAYS = "3650"
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
FRONT_PROXY = "front-proxy-client"


@dataclass(frozen=True)
class User:
    """Somebody who calls the API server with a token."""

    short_name: str
    name: str
    groups: tuple[str, ...] = ()


def users(cluster: ClusterSpec) -> list[User]:
    """The administrator and every component that calls the API server."""
    return [
        User("admin", "admin", ("system:masters",)),
        User("controller-manager", "system:kube-controller-manager"),
        User("scheduler", "system:kube-scheduler"),
        User("kube-proxy", "system:kube-proxy"),
        User("kwok", "kwok", ("system:masters",)),
        *(User(node.short_name, f"system:node:{node.name}", ("system:nodes",)) for node in cluster.node_specs),
    ]


def folder(cluster: ClusterSpec) -> Path:
    """Where everything of this module is."""
    return cluster.folder / "pki"


def ensure(cluster: ClusterSpec) -> None:
    """Make all of it, unless it is there; a run that was killed half-way leaves only a draft, which is made anew."""
    if not folder(cluster).exists():
        draft = cluster.folder / "pki.draft"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        _create(cluster, draft)
        draft.rename(folder(cluster))
    if not cluster.kubeconfig.exists():
        write_atomically(cluster.kubeconfig, (folder(cluster) / "admin.kubeconfig").read_text(), mode=0o600)


def kubeconfig(cluster: ClusterSpec, user: str) -> Path:
    """The kubeconfig of one of the users, by short name."""
    return folder(cluster) / f"{user}.kubeconfig"


def _create(cluster: ClusterSpec, at: Path) -> None:
    _authority(at, "ca", f"{cluster.name}-ca")
    _authority(at, "front-proxy-ca", f"{cluster.name}-front-proxy-ca")
    names = ["DNS:localhost", *(f"DNS:kubernetes{rest}" for rest in ("", ".default", ".default.svc"))]
    addresses = [f"IP:{address}" for address in ("127.0.0.1", cluster.address, API_SERVICE_ADDRESS)]
    _certificate(at, "apiserver", "/CN=kube-apiserver", "ca", f"subjectAltName={','.join(names + addresses)}")
    _certificate(at, "kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client", "ca")
    _certificate(at, FRONT_PROXY, f"/CN={FRONT_PROXY}", "front-proxy-ca")
    run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-out", at / "sa.key"])
    run(["openssl", "pkey", "-in", at / "sa.key", "-pubout", "-out", at / "sa.pub"])
    _tokens(cluster, at)


def _authority(at: Path, name: str, common_name: str) -> None:
    identity = ["-days", _DAYS, "-subj", f"/CN={common_name}"]
    run(["openssl", "req", "-x509", *_NEW_KEY, *identity, "-keyout", at / f"{name}.key", "-out", at / f"{name}.crt"])


def _certificate(at: Path, name: str, subject: str, authority: str, *extensions: str) -> None:
    key, request, certificate = (at / f"{name}.{suffix}" for suffix in ("key", "csr", "crt"))
    run(["openssl", "req", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", subject])
    options = at / f"{name}.ext"
    options.write_text("\n".join(["extendedKeyUsage=serverAuth,clientAuth", *extensions]))
    signer: list[Word] = [
        "-CA",
        at / f"{authority}.crt",
        "-CAkey",
        at / f"{authority}.key",
        "-CAcreateserial",
        "-days",
        _DAYS,
    ]
    run(["openssl", "x509", "-req", *signer, "-in", request, "-out", certificate, "-extfile", options])
    request.unlink()
    options.unlink()


def _tokens(cluster: ClusterSpec, at: Path) -> None:
    authority = base64.b64encode((at / "ca.crt").read_bytes()).decode()
    lines = []
    for user in users(cluster):
        token = secrets.token_hex(16)
        groups = ",".join(user.groups)
        lines.append(f'{token},{user.name},{user.short_name},"{groups}"')
        write_atomically(at / f"{user.short_name}.kubeconfig", _kubeconfig(cluster, user, token, authority), mode=0o600)
    write_atomically(at / "tokens.csv", "\n".join(lines) + "\n", mode=0o600)


def _kubeconfig(cluster: ClusterSpec, user: User, token: str, authority: str) -> str:
    context = f"pdinference-{cluster.name}"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": context, "cluster": {"server": cluster.server, "certificate-authority-data": authority}},
        ],
        "users": [{"name": user.short_name, "user": {"token": token}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": user.short_name}}],
        "current-context": context,
    }
    return yaml.safe_dump(document, sort_keys=False)
