"""The upgrade itself: `python -m e2e.upgrade FOLDER TAG`, where FOLDER holds the files of the earlier commit.

The earlier chart and operator start four PDInferences: one with two autoscaled roles, one that sleeps, one whose new
revision cannot start, and one whose P spans two nodes. Requests go to the three that serve while `helm upgrade`
installs this checkout. It is not part of `make test`, because it needs the history of the repository.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from e2e import programs
from e2e.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.console import console, headline, say
from e2e.images import ImageError, build_earlier
from e2e.install import (
    OPERATOR_NAMESPACE,
    RELEASE,
    ImageReferences,
    apply,
    create_namespace,
    install_operator,
    local_references,
)
from e2e.kubectl import Kubectl, KubectlError
from e2e.load import Load, load
from e2e.local import cluster_with_images
from e2e.nodes import HOSTNAME
from e2e.requests import complete
from e2e.upgrade import resources
from e2e.upgrade.resources import ASLEEP, ROLLING, SCALED, SERVING, WIDE, Document
from e2e.upgrade.state import State, differences, differences_by_revision, state, staying
from e2e.waiting import WaitTimeoutError, conditions, wait_ready, wait_until
from pdinference.api.names import (
    ENGINE_ROLES,
    LABEL_NAME,
    LABEL_REVISION,
    LABEL_ROLE,
    SCALER_KIND,
    SCALER_PLURAL,
    Role,
)

CLUSTER: Final = "upgrade"
NAMESPACE: Final = "models"
_COMPLETE: Final = (SCALED, ASLEEP, WIDE)
"""Resources that roll out the new operator's revision, if it differs. The roll-out that hangs goes on hanging."""
_MISSING_IMAGE: Final = "localhost/pdinference/no-such-image:1"
_ANSWERS: Final = 10
_SECONDS: Final = 600


class UpgradeError(Exception):
    """The upgrade changed what it may not change, or not what it has to; each line is one difference."""


@dataclass(frozen=True)
class Upgrade:
    """One cluster on its way from an earlier commit to this one.

    Attributes:
        kubectl: In the namespace of the PDInferences.
        earlier: Images of the earlier commit.
        present: Images of this checkout.
        chart: The chart of the earlier commit.
        rollout: Whether the upgrade has to roll out new revisions; None if both is right.
    """

    kubectl: Kubectl
    earlier: ImageReferences
    present: ImageReferences
    chart: Path
    rollout: bool | None = None

    def run(self) -> None:
        """Upgrade, and continue with what the earlier operator left.

        Raises:
            UpgradeError: A request or a pod was lost.
            WaitTimeoutError: Something did not happen.
        """
        headline("The earlier operator, and four PDInferences")
        install_operator(self.kubectl, self.earlier, chart=self.chart)
        create_namespace(self.kubectl)
        self._sleep()
        self._start_wide()
        self._start_a_rollout_that_hangs()
        self._scale()
        headline("helm upgrade, under load")
        self._upgrade()
        headline("Scaling, a roll-out and sleep by the new operator")
        self._continue()

    def _sleep(self) -> None:
        apply(self.kubectl, resources.asleep(self.earlier))
        wait_ready(self.kubectl, ASLEEP, timeout=_SECONDS)
        self._until_asleep()

    def _start_wide(self) -> None:
        apply(self.kubectl, resources.wide(self.earlier, self._hosts()))
        wait_ready(self.kubectl, WIDE, timeout=_SECONDS)

    def _hosts(self) -> list[str]:
        nodes = self.kubectl.get("nodes")["items"]
        return [node["metadata"]["labels"][HOSTNAME] for node in nodes if not node["spec"].get("taints")]

    def _start_a_rollout_that_hangs(self) -> None:
        apply(self.kubectl, resources.rolling(self.earlier))
        wait_ready(self.kubectl, ROLLING, timeout=_SECONDS)
        apply(self.kubectl, resources.rolling(self.earlier, image=_MISSING_IMAGE))
        wait_until("pods without an image", self._hangs)

    def _hangs(self) -> bool:
        status = self._resource(ROLLING)["status"]
        pods = staying(self.kubectl, f"{LABEL_NAME}={ROLLING},{LABEL_REVISION}={status['revision']}")
        waiting = [
            entry["state"].get("waiting", {}).get("reason", "")
            for pod in pods
            for entry in pod["status"].get("containerStatuses", [])
        ]
        return status["revision"] != status["servingRevision"] and any("Image" in reason for reason in waiting)

    def _scale(self) -> None:
        """Let requests scale D to two pods, which stay for ten minutes after the last one."""
        apply(self.kubectl, resources.scaled(self.earlier))
        wait_ready(self.kubectl, SCALED, timeout=_SECONDS)
        with self._loads(SCALED):
            self._until_ready(SCALED, parameter=1, decode=2)

    def _upgrade(self) -> None:
        before = {name: state(self.kubectl, name) for name in (*SERVING, ASLEEP)}
        routers = frozenset().union(*(before[name].routers for name in _COMPLETE))
        with self._loads(*SERVING) as clients:
            _wait_for_answers(clients)
            install_operator(self.kubectl, self.present)
            self._until_taken_over(routers)
            _wait_for_answers(clients)
            lost = _unanswered(clients)
        self._until_asleep()
        after = {name: state(self.kubectl, name) for name in before}
        found = [*lost, *differences(before[ROLLING], after[ROLLING]), *self._wrong_conditions()]
        for name in _COMPLETE:
            say(_served(name, before[name], after[name]))
            found += differences_by_revision(before[name], after[name], rollout=self.rollout)
        if found:
            raise UpgradeError("\n".join(found))
        say(f"no pod was lost; {ROLLING} goes on with those it had")

    def _until_taken_over(self, old: frozenset[str]) -> None:
        """Wait until the new operator has replaced the old router pods, after P and D, and has written all HPAs."""

        def replaced() -> bool:
            pods = staying(self.kubectl, f"{LABEL_NAME} in ({','.join(_COMPLETE)}),{LABEL_ROLE}={Role.ROUTER}")
            new = [pod for pod in pods if pod["metadata"]["uid"] not in old]
            return len(new) == len(pods) == len(old) and all(map(_is_ready, new))

        wait_until("new router pods", replaced, timeout=_SECONDS)
        say("the router pods are replaced")
        wait_until("HPAs that scale PDScalers", self._scales_scalers)
        wait_until("a leader of this release", self._leads)

    def _scales_scalers(self) -> bool:
        hpas = self.kubectl.get("hpa")["items"]
        scalers = {each["metadata"]["name"] for each in self.kubectl.get(SCALER_PLURAL)["items"]}
        targets = [hpa["spec"]["scaleTargetRef"] for hpa in hpas]
        return {target["name"] for target in targets if target["kind"] == SCALER_KIND} == scalers and len(
            targets
        ) == len(scalers)

    def _leads(self) -> bool:
        pods = self.kubectl.get("pods", "-n", OPERATOR_NAMESPACE, "-l", f"app.kubernetes.io/instance={RELEASE}")
        lease = self.kubectl.get("lease", "pdinference-operator", "-n", OPERATOR_NAMESPACE)
        leader = lease["spec"]["holderIdentity"].partition("_")[0]
        images = {pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in pods["items"]}
        return images.get(leader) == self.present.operator

    def _wrong_conditions(self) -> Iterator[str]:
        for name in SERVING:
            found = conditions(self._resource(name))
            if found["Ready"]["status"] != "True":
                yield f"{name} is not Ready: {found['Ready']['message']}"
        status = self._resource(ROLLING)["status"]
        if status["revision"] == status["servingRevision"]:
            yield f"{ROLLING} serves the revision whose image is missing"

    def _continue(self) -> None:
        """Let the new operator scale down and up, end the roll-out and wake what sleeps."""
        with self._loads(SCALED, ROLLING) as clients:
            apply(self.kubectl, resources.scaled(self.present, kv_demand="1", quick=True))
            self._until_ready(SCALED, parameter=1, decode=1)
            apply(self.kubectl, resources.scaled(self.present, least=2, quick=True))
            self._until_ready(SCALED, parameter=2, decode=2)
            apply(self.kubectl, resources.rolling(self.present, variable="changed"))
            wait_until("the end of the roll-out", self._rolled_out, timeout=_SECONDS)
            say(f"{ROLLING} serves its new revision")
            _wait_for_answers(clients)
            lost = _unanswered(clients)
        if lost:
            raise UpgradeError("\n".join(lost))
        with self.kubectl.port_forward(f"service/{ASLEEP}", 80) as url:
            answer = complete(url, ASLEEP, "Wake up. " * 50, max_tokens=8, ignore_eos=True, timeout=300)
        say(f"{ASLEEP} answered after {answer.seconds:.0f} s, the start of P and D included")
        self._until_asleep()

    def _rolled_out(self) -> bool:
        resource = self._resource(ROLLING)
        status = resource["status"]
        pods = staying(self.kubectl, f"{LABEL_NAME}={ROLLING},{LABEL_ROLE}!={Role.ROUTER}")
        return (
            status["observedGeneration"] == resource["metadata"]["generation"]
            and status["servingRevision"] == status["revision"]
            and {pod["metadata"]["labels"][LABEL_REVISION] for pod in pods} == {status["revision"]}
        )

    def _until_ready(self, name: str, **pods: int) -> None:
        """Wait until both roles have so many pods, all of them ready."""

        def has_them() -> bool:
            roles = self._resource(name)["status"]["roles"]
            return all(roles[role]["replicas"] == roles[role]["ready"] == count for role, count in pods.items())

        wait_until(f"{name} with {pods}", has_them, timeout=_SECONDS)
        say(f"{name} has {pods}")

    def _until_asleep(self) -> None:
        def sleeps() -> bool:
            found = conditions(self._resource(ASLEEP))["Ready"]
            roles = f"{LABEL_ROLE} in ({','.join(ENGINE_ROLES)})"
            pods: list[Any] = self.kubectl.get("pods", "-l", f"{LABEL_NAME}={ASLEEP},{roles}")["items"]
            return found["reason"] == "Asleep" and not pods

        wait_until(f"{ASLEEP} to sleep", sleeps, timeout=_SECONDS)
        say(f"{ASLEEP} sleeps")

    def _resource(self, name: str) -> Document:
        found: Document = self.kubectl.get("pdi", name)
        return found

    @contextmanager
    def _loads(self, *names: str) -> Iterator[Mapping[str, Load]]:
        """Send requests to PDInferences until the end of the block."""
        with ExitStack() as stack:
            yield {name: stack.enter_context(self._load(name)) for name in names}

    def _load(self, name: str) -> AbstractContextManager[Load]:
        """Requests to the address of the Service: a DNS server that gets no CPU says nothing about the upgrade."""
        address = self.kubectl.get("service", name)["spec"]["clusterIP"]
        return load(self.kubectl, f"http://{address}", name, self.present.operator, pod=f"load-{name}")


def _wait_for_answers(clients: Mapping[str, Load]) -> None:
    for client in clients.values():
        client.wait_for(more=_ANSWERS)


def _unanswered(clients: Mapping[str, Load]) -> list[str]:
    lost = []
    for name, client in clients.items():
        say(f"{name}:")
        lost += [f"request to {name}: {request}" for request in client.unanswered()]
    return lost


def _served(name: str, before: State, after: State) -> str:
    if before.revision == after.revision:
        return f"{name}: no roll-out, revision {after.revision} still serves"
    return f"{name}: rolled out, revision {after.revision} serves after {before.revision}"


def _is_ready(pod: Document) -> bool:
    statuses = pod["status"].get("containerStatuses", [])
    return bool(statuses) and all(status["ready"] for status in statuses)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("tag")
@click.option("--keep", is_flag=True, help="Leave the cluster as it is at the end.")
@click.option("--rollout/--no-rollout", default=None, help="Whether it has to roll out new revisions. Default: either.")
def cli(folder: Path, tag: str, *, keep: bool, rollout: bool | None) -> None:
    """Upgrade from the commit TAG, whose files are in FOLDER."""
    Cluster.discard(CLUSTER)
    operator, router = build_earlier(folder, tag)
    try:
        cluster, built = cluster_with_images(CLUSTER, policies=True)
        for image in {operator, router}:
            cluster.load_image(image.reference, storage=image.storage)
        present = local_references(built)
        earlier = replace(present, operator=operator.reference, router=router.reference, build=operator.content)
        chart = folder.absolute() / "charts" / "pdinference-operator"
        Upgrade(Kubectl(cluster.kubeconfig, NAMESPACE), earlier, present, chart, rollout).run()
    finally:
        if not keep:
            Cluster.discard(CLUSTER)


def main() -> None:
    """Run the upgrade; errors that a person can act on come without a traceback."""
    programs.restrict()
    try:
        cli()
    except (ClusterError, ImageError, KubectlError, UpgradeError, WaitTimeoutError) as error:
        console.print(f"Error: {error}", markup=False, style="bold red")
        sys.exit(1)


if __name__ == "__main__":
    main()
