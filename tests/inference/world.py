"""The operator's core on an API server in memory."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pdinference.api import names
from pdinference.api.names import Role
from pdinference.cluster.apply import Applier
from pdinference.cluster.cache import Cache
from pdinference.cluster.history.store import History
from pdinference.cluster.kinds import CONTROLLER_REVISION, DEPLOYMENT, POD, RESOURCE, Owner, watched
from pdinference.cluster.replicas import ReplicaWriter
from pdinference.controller.events import EventRecorder
from pdinference.controller.metrics import Metrics
from pdinference.controller.results import Result
from pdinference.controller.status_writer import Reporter
from pdinference.examination.client import Examinations
from pdinference.examination.effective_spec import EffectiveSpecs
from pdinference.examination.tasks import tasks
from pdinference.inference.execute import Executor
from pdinference.inference.reconcile import Reconciler
from pdinference.inference.snapshotter import Snapshotter
from pdinference.isolation.calls import Calls, InProcess
from pdinference.manifests import RenderSettings
from pdinference.planning.observations import Observations
from pdinference.planning.scaling.sleep_and_wake import ReportedActivity
from tests.cluster.fake_api import FakeApi
from tests.controllers import pod_of

Json = dict[str, Any]
OWNER = Owner("ns", "llama")
CR = RESOURCE.path("ns", "llama")
ROUTER = DEPLOYMENT.path("ns", "llama-router")


class World:
    """The operator's core on an API server in memory; `sync` plays the watches."""

    def __init__(self, document: Json, settings: RenderSettings = RenderSettings()) -> None:  # noqa: B008 - frozen
        self.api = FakeApi()
        self.settings = settings
        self.metrics = Metrics()
        self.document = document
        self.observations = Observations(activity=ReportedActivity(held=False, idle_seconds=0))
        self.ahead = timedelta()
        self.restart()
        self.edit()

    def restart(self) -> None:
        """A new operator process: all that was in memory is gone."""
        self.cache = Cache()
        self.examinations(InProcess(tasks(self.settings)))
        self.sync()

    def examinations(self, calls: Calls) -> None:
        """Let these make the examinations from now on."""
        events = EventRecorder(self.api, self.metrics, instance="test")
        history = History(self.api, self.cache)
        specs = EffectiveSpecs(Examinations(calls), history)
        self.reconciler = Reconciler(
            cache=self.cache,
            snapshotter=Snapshotter(
                self.cache,
                history,
                observations=lambda _: self.observations,
                now=lambda: datetime.now(UTC) + self.ahead,
            ),
            executor=Executor(
                api=self.api,
                specs=specs,
                applier=Applier(self.api, self.cache),
                replicas=ReplicaWriter(self.api, self.cache),
                history=history,
                metrics=self.metrics,
            ),
            reporter=Reporter(self.api, self.cache, events, self.metrics),
            metrics=self.metrics,
            specs=specs,
        )

    def observe(self, **facts: Any) -> None:
        """The operator measures these facts of the resource from now on."""
        self.observations = replace(self.observations, **facts)

    def later(self, seconds: float) -> None:
        """Time passes."""
        self.ahead += timedelta(seconds=seconds)

    def edit(self, **spec: Any) -> None:
        """The user applies a spec."""
        old = self.api.objects.get(CR, {})
        kept = {"status": old["status"]} if "status" in old else {}
        body = {**self.document, **kept, "spec": {**self.document["spec"], **spec}}
        marks = old.get("metadata", {}).get("annotations", {})
        body["metadata"] = {"name": "llama", "namespace": "ns", **({"annotations": marks} if marks else {})}
        self.api.put(CR, body)
        self.sync()

    def sync(self) -> None:
        """Bring the cache up to date with all live objects that are watched."""
        for kind in watched(keda=self.settings.keda is not None):
            prefix = kind.path("ns") + "/"
            bodies = [body for path, body in self.api.objects.items() if path.startswith(prefix)]
            for body in bodies:
                self.cache.observe(kind, body, deleted=False)
            tables = {RESOURCE: self.cache.resources, POD: self.cache.pods, CONTROLLER_REVISION: self.cache.history}
            table = tables.get(kind, self.cache.children)
            uids = {body["metadata"]["uid"] for body in bodies}
            for key, record in table.items():  # type: ignore[attr-defined]
                if (table is not self.cache.children or key[0] == kind.name) and record.uid not in uids:
                    table.remove(key, record.uid, 0)  # type: ignore[attr-defined]

    async def reconcile(self) -> Result:
        self.api.requests.clear()
        result = await self.reconciler.reconcile(OWNER)
        self.sync()
        return result

    @property
    def status(self) -> Json:
        found: Json = self.api.objects[CR]["status"]
        return found

    def condition(self, type_: str) -> Json:
        return next(condition for condition in self.status["conditions"] if condition["type"] == type_)

    def revisions(self, kind: str = "deployments") -> set[str]:
        """Revisions of which a decode (or other) workload exists."""
        return {name.rsplit("-", 1)[1] for name in self.api.names(f"/{kind}/llama-decode-")}

    def roll_out(self, *, ready: bool = True) -> None:
        """What the controllers of Kubernetes do: pods of the templates, and statuses."""
        for path in [
            path for path in self.api.objects if any(f"/{k}/" in path for k in ("deployments", "statefulsets"))
        ]:
            self._finish(path, ready=ready)
        self.sync()

    def _finish(self, path: str, *, ready: bool) -> None:
        body = self.api.objects[path]
        count = body["spec"].get("replicas", 1)
        up = count if ready else 0
        body["status"] = {
            "observedGeneration": body["metadata"]["generation"],
            "replicas": count,
            "updatedReplicas": count,
            "readyReplicas": up,
            "availableReplicas": up,
        }
        generation = body["metadata"]["generation"]
        self.api.put(path, body)
        self.api.objects[path]["metadata"]["generation"] = generation
        labels = body["spec"]["template"]["metadata"]["labels"]
        if labels[names.LABEL_ROLE] == Role.ROUTER:
            for old in [p for p in self.api.objects if "/pods/llama-router" in p]:
                del self.api.objects[old]
        name = f"{body['metadata']['name']}-{labels[names.LABEL_REVISION]}-0"
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        spec = body["spec"]["template"]["spec"]
        made = pod_of(body)["metadata"]
        metadata = {"name": name, "namespace": "ns", "labels": made["labels"]}
        pod = {"metadata": {**metadata, "ownerReferences": made["ownerReferences"]}, "spec": spec}
        containers = [{"name": container["name"], "ready": ready} for container in spec["containers"]]
        status = {"phase": "Running", "conditions": conditions, "containerStatuses": containers}
        self.api.put(POD.path("ns", name), {**pod, "status": status})
