"""A PDBatch waits for its PDInference, becomes one Job, and reports its progress."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from pdinference.api import names
from pdinference.batch.reconcile import BatchReconciler
from pdinference.cluster.apply import Applier
from pdinference.cluster.cache import Cache
from pdinference.cluster.errors import ApiError
from pdinference.cluster.history.store import History
from pdinference.cluster.kinds import BATCH, CHILDREN, CONFIG_MAP, CONTROLLER_REVISION, JOB, POD, RESOURCE, Owner
from pdinference.controller.events import EventRecorder
from pdinference.controller.metrics import Metrics
from pdinference.controller.results import Result
from pdinference.controller.status_writer import Reporter
from pdinference.examination.client import Examinations
from pdinference.examination.effective_spec import EffectiveSpecs
from pdinference.examination.tasks import tasks
from pdinference.isolation.calls import InProcess
from pdinference.manifests import RenderSettings
from pdinference.planning.batch import Progress
from tests.cluster.fake_api import FakeApi
from tests.conftest import allowing
from tests.controllers import owned

Json = dict[str, Any]
OWNER = Owner("models", "nightly", names.BATCH_KIND)
INFERENCE = Owner("models", "llama")
CR = BATCH.path("models", "nightly")
JOB_PATH = JOB.path("models", "nightly-batch")
REPORT = '{"total": 20, "completed": 19, "failed": 1, "message": "19 of 20 requests answered; 1 failed."}'


class World:
    """The reconciler on an API server in memory; `sync` plays the watches."""

    def __init__(self, document: Callable[..., Json], inference: Json) -> None:
        self.api = FakeApi()
        self.document = document
        self.inference = inference
        self.seen: Progress | None = None
        self.settings = RenderSettings(batch_config_maps=True)
        self.restart()
        self.edit()

    def restart(self) -> None:
        self.cache = Cache()
        metrics = Metrics()
        events = EventRecorder(self.api, metrics, instance="test")
        examinations = Examinations(InProcess(tasks(self.settings)))
        self.history = History(self.api, self.cache)
        self.reconciler = BatchReconciler(
            api=self.api,
            cache=self.cache,
            applier=Applier(self.api, self.cache),
            reporter=Reporter(self.api, self.cache, events, metrics),
            metrics=metrics,
            settings=self.settings,
            examinations=examinations,
            specs=EffectiveSpecs(examinations, self.history),
            progress=lambda _: self.seen,
            now=lambda: datetime(2026, 11, 21, tzinfo=UTC),
        )
        self.sync()

    def edit(self, **spec: Any) -> None:
        self._put(CR, self.document(**spec))

    def serve(self, ready: str = "True", **status: Any) -> None:
        """The PDInference is there, and Ready or not."""
        condition = {
            "type": "Ready",
            "status": ready,
            "reason": "X",
            "message": "P: 0 of 1 pods ready.",
            "lastTransitionTime": "2026-11-21T00:00:00Z",
            "observedGeneration": 1,
        }
        status = {"url": "http://llama.models.svc", "conditions": [condition], **status}
        self._put(RESOURCE.path("models", "llama"), {**self.inference, "status": status})

    async def remember(self) -> str:
        """Keep the stored spec of the PDInference as its last valid one. Returns the path of the entry."""
        resource = self.cache.resources.get(INFERENCE)
        assert resource is not None
        await self.history.remember(resource)
        (path,) = (path for path in self.api.objects if path.startswith(CONTROLLER_REVISION.path("models")))
        return path

    def job(self, *conditions: tuple[str, str], **status: Any) -> None:
        """What the Job controller writes."""
        found = self.api.objects[JOB_PATH]
        ended = [
            {"type": type_, "status": "True", "reason": reason, "lastTransitionTime": "2026-11-21T01:00:00Z"}
            for type_, reason in conditions
        ]
        status = {"startTime": "2026-11-21T00:30:00Z", "conditions": ended, **status}
        self._put(JOB_PATH, {**found, "status": status})

    def pod(
        self, name: str = "one", *, phase: str = "Running", report: str = "", created: str = "1", job: str = ""
    ) -> None:
        """A pod of the Job, or of an earlier one with this uid."""
        own = self.api.objects[JOB_PATH]
        labels = own["spec"]["template"]["metadata"]["labels"]
        metadata = owned({"name": name, "namespace": "models", "labels": labels})
        metadata["ownerReferences"][0]["uid"] = job or own["metadata"]["uid"]
        ended = {"terminated": {"exitCode": 0 if phase == "Succeeded" else 1, "reason": "Error", "message": report}}
        containers = [{"name": "runner", "state": ended if phase in {"Succeeded", "Failed"} else {"running": {}}}]
        status = {"phase": phase, "podIP": "10.0.0.9", "containerStatuses": containers}
        metadata["creationTimestamp"] = created
        self._put(POD.path("models", name), {"metadata": metadata, "status": status})

    def remove(self, path: str) -> None:
        del self.api.objects[path]
        self.sync()

    def sync(self) -> None:
        for kind in (RESOURCE, BATCH, *CHILDREN, POD):
            prefix = kind.path("models") + "/"
            found = [body for path, body in self.api.objects.items() if path.startswith(prefix)]
            for body in found:
                self.cache.observe(kind, body, deleted=False)
            uids = {body["metadata"]["uid"] for body in found}
            tables = {RESOURCE: self.cache.resources, BATCH: self.cache.resources, POD: self.cache.pods}
            table: Any = tables.get(kind, self.cache.children)
            for key, record in table.items():
                mine = {self.cache.resources: key[-1], self.cache.children: key[0]}.get(table, kind.name)
                if mine == kind.name and record.uid not in uids:
                    table.remove(key, record.uid, 0)

    async def reconcile(self) -> Result:
        self.api.requests.clear()
        result = await self.reconciler.reconcile(OWNER)
        self.sync()
        return result

    @property
    def status(self) -> Json:
        found: Json = self.api.objects[CR].get("status", {})
        return found

    def condition(self, type_: str) -> Json:
        return next(c for c in self.status["conditions"] if c["type"] == type_)

    def events(self) -> list[str]:
        return [body["reason"] for path, body in self.api.objects.items() if "/events/" in path]

    def _put(self, path: str, body: Json) -> None:
        old = self.api.objects.get(path, {})
        self.api.put(path, {**({"status": old["status"]} if "status" in old else {}), **body})
        self.sync()


@pytest.fixture
def world(batch_document: Callable[..., Json], document: Callable[..., Json]) -> World:
    return World(batch_document, document())


async def started(world: World) -> None:
    world.serve()
    await world.reconcile()
    await world.reconcile()


async def test_without_a_pdinference_it_waits_and_says_for_what(world: World) -> None:
    result = await world.reconcile()
    assert JOB_PATH not in world.api.objects
    assert world.status["phase"] == "Waiting"
    running = world.condition("Running")
    assert (running["status"], running["reason"]) == ("False", "WaitingForService")
    assert "PDInference llama of spec.inferenceRef.name does not exist in namespace models" in running["message"]
    assert result.requeue_after


async def test_it_waits_until_the_pdinference_is_ready(world: World) -> None:
    world.serve(ready="False")
    await world.reconcile()
    assert "PDInference llama is not Ready. P: 0 of 1 pods ready." in world.condition("Running")["message"]
    assert JOB_PATH not in world.api.objects
    world.serve()
    await world.reconcile()
    assert JOB_PATH in world.api.objects


async def test_waiting_writes_nothing_more(world: World) -> None:
    await world.reconcile()
    await world.reconcile()
    assert world.api.requests == {}


async def test_the_job_is_made_once(world: World) -> None:
    await started(world)
    assert world.status["phase"] == "Pending"
    arguments = world.api.objects[JOB_PATH]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--url=http://llama.models.svc" in arguments
    await world.reconcile()
    assert world.api.requests == {}


async def test_an_upgrade_of_the_operator_leaves_a_job_alone(world: World) -> None:
    """Its pod template could not be changed anyway."""
    await started(world)
    body = world.api.objects[JOB_PATH]
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "older"
    body["metadata"]["annotations"][names.ANNOTATION_APPLIED_HASH] = "of an older operator"
    world.api.put(JOB_PATH, body)
    world.restart()
    await world.reconcile()
    assert world.api.requests == {}


async def test_a_deleted_job_is_created_again(world: World) -> None:
    await started(world)
    world.remove(JOB_PATH)
    await world.reconcile()
    assert JOB_PATH in world.api.objects


async def test_a_job_that_lost_its_label_gets_it_back_and_keeps_its_pods(world: World) -> None:
    """A newer operator would run another image, and a pod template is immutable."""
    await started(world)
    world.pod()
    labels = world.api.objects[JOB_PATH]["metadata"]["labels"]
    template = world.api.objects[JOB_PATH]["spec"]["template"]
    world.settings = RenderSettings(runner_image="another:1")
    world.api.objects[JOB_PATH]["metadata"]["labels"] = {}
    world.restart()
    world.cache.children.remove(("Job", "models", "nightly-batch"), world.api.objects[JOB_PATH]["metadata"]["uid"], 0)
    assert (await world.reconcile()).retry
    assert world.status["phase"] == "Running"
    found = world.api.objects[JOB_PATH]
    assert (found["metadata"]["labels"], found["spec"]["template"]) == (labels, template)
    assert not (await world.reconcile()).retry


async def test_progress_comes_from_the_runner_while_it_runs(world: World) -> None:
    await started(world)
    world.pod()
    world.seen = Progress(20, 7, 1)
    result = await world.reconcile()
    assert (world.status["phase"], world.status["progress"]) == ("Running", "8/20")
    assert (world.status["total"], world.status["completed"], world.status["failed"]) == (20, 7, 1)
    assert result.requeue_after
    world.seen = None  # no answer: what is known stays
    await world.reconcile()
    assert world.status["progress"] == "8/20"
    assert world.api.requests == {}


async def test_the_end_is_reported_from_the_termination_message(world: World) -> None:
    await started(world)
    world.pod(phase="Succeeded", report=REPORT)
    world.job(("Complete", "CompletionsReached"))
    result = await world.reconcile()
    assert (world.status["phase"], world.status["progress"]) == ("Complete", "20/20")
    assert (world.status["completed"], world.status["failed"]) == (19, 1)
    assert world.status["completionTime"] == "2026-11-21T01:00:00Z"
    assert world.condition("Complete")["status"] == "True"
    assert world.condition("Complete")["message"] == "19 of 20 requests answered; 1 failed."
    assert not result.requeue_after
    assert "Complete" in world.events()


async def test_a_batch_ends_only_with_its_termination_message(world: World) -> None:
    """The Job and its pod come by two watches, in any order."""
    await started(world)
    world.pod()
    world.job(("Complete", "CompletionsReached"))
    result = await world.reconcile()
    assert world.status["phase"] == "Running"
    assert result.requeue_after
    world.pod(phase="Succeeded", report=REPORT)
    await world.reconcile()
    assert world.status["progress"] == "20/20"


async def test_what_is_over_stays_over_when_the_job_is_removed(world: World) -> None:
    await started(world)
    world.pod(phase="Succeeded", report=REPORT)
    world.job(("Complete", "CompletionsReached"))
    await world.reconcile()
    world.remove(JOB_PATH)
    world.remove(POD.path("models", "one"))
    world.restart()
    result = await world.reconcile()
    assert world.status["progress"] == "20/20"
    assert JOB_PATH not in world.api.objects
    assert (world.api.requests, result) == ({}, Result())


async def test_a_failure_is_reported_with_the_runners_message(world: World) -> None:
    await started(world)
    world.pod(phase="Failed", report='{"total": 0, "completed": 0, "failed": 0, "message": "line 2: custom_id"}')
    world.job(("Failed", "PodFailurePolicy"))
    await world.reconcile()
    assert world.status["phase"] == "Failed"
    failed = world.condition("Failed")
    assert (failed["status"], failed["reason"], failed["message"]) == ("True", "PodFailurePolicy", "line 2: custom_id")


async def test_a_runner_without_termination_message_is_reported_from_its_log(world: World) -> None:
    await started(world)
    world.pod("one", phase="Failed", report="Traceback\nValueError: odd", created="1")
    world.pod("two", created="2")
    await world.reconcile()
    message = world.condition("Running")["message"]
    assert world.status["phase"] == "Running"
    assert message == "Requests are being sent. The previous attempt failed: ValueError: odd"


@pytest.mark.parametrize(
    "report",
    [
        "[" * 4000,
        '{"total": Infinity, "completed": 0, "failed": 0, "message": "x"}',
        '{"total": NaN, "completed": 0, "failed": 0, "message": "x"}',
        '{"total": 1e308, "completed": 0, "failed": 0, "message": "x"}',
        '{"total": -1, "completed": 0, "failed": 0, "message": "x"}',
        '{"total": true, "completed": 0, "failed": 0, "message": "x"}',
        '{"total": "9", "completed": 0, "failed": 0, "message": "x"}',
        '{"total": 99999999999999999999, "completed": 0, "failed": 0, "message": "x"}',
        '{"total": 1, "completed": 0, "failed": 0, "message": {}}',
        '{"total": 1, "completed": 0, "failed": 0, "message": "\\ud800"}',
        '{"total": 1}',
        "[]",
        "7",
    ],
)
async def test_an_invalid_termination_message_has_no_counts(world: World, report: str) -> None:
    await started(world)
    world.pod(phase="Failed", report=report)
    world.job(("Failed", "BackoffLimitExceeded"))
    await world.reconcile()
    assert world.status["phase"] == "Failed"
    assert (world.status["total"], world.status["completed"]) == (0, 0)


def runner(world: World) -> Json:
    """The runner's container in the Job."""
    (container,) = world.api.objects[JOB_PATH]["spec"]["template"]["spec"]["containers"]
    found: Json = container
    return found


@pytest.mark.parametrize("url", ["http://169.254.169.254", "http://llama.models.svc@evil.example", ""])
async def test_a_status_does_not_choose_where_requests_go(world: World, url: str) -> None:
    """Writers of a status need no right to write the spec."""
    world.serve(url=url)
    await world.reconcile()
    assert [a for a in runner(world)["args"] if a.startswith("--url")] == ["--url=http://llama.models.svc"]


async def test_requests_go_by_the_spec_in_effect(world: World) -> None:
    world.inference["spec"] |= {
        "router": {"service": {"port": 8000}},
        "model": {**world.inference["spec"]["model"], "name": "big"},
    }
    world.serve()
    await world.reconcile()
    assert {"--url=http://llama.models.svc:8000", "--default-model=big"} <= set(runner(world)["args"])


async def test_the_runner_gets_what_the_router_demands(world: World) -> None:
    world.inference["spec"] |= {"router": {"tls": {"secretName": "a"}, "apiKeys": {"secretName": "b"}}}
    world.serve()
    await world.reconcile()
    arguments = {"--url=https://llama.models.svc", "--api-key-file=/api-key/batch"}
    assert {*arguments, "--certificate-file=/certificate/tls.crt"} <= set(runner(world)["args"])
    volumes = world.api.objects[JOB_PATH]["spec"]["template"]["spec"]["volumes"]
    assert [one["secret"]["secretName"] for one in volumes if "secret" in one] == ["b", "a"]


async def test_the_runner_is_pulled_with_the_secrets_of_the_router(world: World) -> None:
    world.inference["spec"] |= {"router": {"podTemplate": {"spec": {"imagePullSecrets": [{"name": "registry"}]}}}}
    world.serve()
    await world.reconcile()
    pod = world.api.objects[JOB_PATH]["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]


async def test_a_running_batch_keeps_its_access(world: World) -> None:
    """The template of its Job cannot change. The runner reports it if the router rejects it."""
    await started(world)
    world.inference["spec"] |= {"router": {"tls": {"secretName": "a"}, "apiKeys": {"secretName": "b"}}}
    world.serve()
    await world.reconcile()
    assert world.api.requests == {}


async def test_without_a_valid_spec_there_is_no_job(world: World) -> None:
    world.inference["spec"] |= {"router": {"tls": {"secretName": "Not A Name"}}}
    world.serve()
    await world.reconcile()
    assert JOB_PATH not in world.api.objects
    message = world.condition("Running")["message"]
    assert "PDInference llama has no valid spec. Correct it: spec.router.tls.secretName" in message


async def test_while_the_stored_spec_is_invalid_the_last_valid_one_counts(world: World) -> None:
    world.inference["spec"] |= {"router": {"service": {"port": 8000}}}
    world.serve()
    entry = await world.remember()
    world.inference["spec"]["router"] = {"service": {"port": 9000}, "tls": {"secretName": "Not A Name"}}
    world.serve()
    world.api.fail("get", entry, ApiError(500, "InternalError", "etcd is away"))
    await world.reconcile()
    assert JOB_PATH not in world.api.objects
    assert "The last valid spec of PDInference llama cannot be read: etcd" in world.condition("Running")["message"]
    await world.reconcile()
    assert "--url=http://llama.models.svc:8000" in runner(world)["args"]


async def test_a_timeout_is_reported_with_its_field(world: World) -> None:
    await started(world)
    world.job(("Failed", "DeadlineExceeded"))
    await world.reconcile()
    assert "spec.timeoutSeconds" in world.condition("Failed")["message"]


async def test_suspend_reaches_the_job_and_back(world: World) -> None:
    await started(world)
    world.edit(suspend=True)
    result = await world.reconcile()
    assert world.api.objects[JOB_PATH]["spec"]["suspend"] is True
    assert (world.status["phase"], result.requeue_after) == ("Suspended", None)
    world.edit()
    await world.reconcile()
    assert world.api.objects[JOB_PATH]["spec"]["suspend"] is False
    assert world.status["phase"] == "Pending"


async def test_a_deleted_pdinference_is_reported_while_the_runner_retries(world: World) -> None:
    await started(world)
    world.pod()
    world.remove(RESOURCE.path("models", "llama"))
    await world.reconcile()
    assert world.status["phase"] == "Running"
    assert "PDInference llama of spec.inferenceRef.name does not exist" in world.condition("Running")["message"]


async def test_a_strangers_job_is_left_alone_and_named(world: World) -> None:
    world.api.put(JOB_PATH, {"metadata": {"name": "nightly-batch", "namespace": "models"}, "spec": {}})
    world.serve()
    result = await world.reconcile()
    assert result.retry
    message = world.condition("Running")["message"]
    assert "does not belong to this PDBatch" in message
    assert "give the PDBatch another name" in message


async def test_a_refused_job_is_reported_with_the_api_servers_message(world: World) -> None:
    world.serve()
    world.api.fail("apply", JOB_PATH, ApiError(403, "Forbidden", "exceeded quota"))
    result = await world.reconcile()
    assert result.retry
    assert "Job nightly-batch: exceeded quota" in world.condition("Running")["message"]


async def test_an_invalid_stored_spec_is_reported(world: World) -> None:
    world.edit(concurrency=0)
    world.serve()
    await world.reconcile()
    assert world.condition("Running")["reason"] == "InvalidSpec"
    assert "spec.concurrency" in world.condition("Running")["message"]
    assert JOB_PATH not in world.api.objects


async def test_a_batch_that_became_invalid_still_has_the_state_of_its_job(world: World) -> None:
    """Another version of the operator may check more."""
    await started(world)
    world.pod()
    await world.reconcile()
    world.edit(concurrency=0)
    await world.reconcile()
    assert (world.status["phase"], world.condition("Running")["reason"]) == ("Running", "InvalidSpec")
    world.pod(phase="Succeeded", report=REPORT)
    world.job(("Complete", "CompletionsReached"))
    await world.reconcile()
    assert (world.status["phase"], world.status["completed"]) == ("Complete", 19)


async def test_a_batch_that_runs_when_the_policy_is_narrowed_may_be_suspended(world: World) -> None:
    world.edit(placement={"priorityClassName": "nightly"})
    await started(world)
    world.settings = RenderSettings(policy=allowing(priorityClasses=["other"]))
    world.restart()
    world.edit(placement={"priorityClassName": "nightly"}, suspend=True)
    await world.reconcile()
    assert world.status["phase"] == "Suspended"
    assert world.api.objects[JOB_PATH]["spec"]["suspend"] is True


async def test_a_batch_created_again_has_no_counts_of_the_earlier_one(world: World) -> None:
    """Their pods have the same names, and the earlier runner ends later."""
    await started(world)
    world.pod()
    world.seen = Progress(20, 7, 1)
    await world.reconcile()
    assert world.status["progress"] == "8/20"
    batch = world.document()
    world.remove(CR)
    world.api.put(CR, {**batch, "metadata": {**batch["metadata"], "uid": "another"}})
    world.sync()
    await world.reconcile()
    assert (world.status["phase"], world.status["total"]) == ("Pending", 0)


async def test_a_report_of_another_jobs_pod_counts_nothing(world: World) -> None:
    await started(world)
    world.pod(phase="Failed", report=REPORT, job="earlier")
    await world.reconcile()
    assert (world.status["phase"], world.status["total"]) == ("Pending", 0)


async def test_a_job_that_runs_runs_although_a_change_of_it_is_refused(world: World) -> None:
    await started(world)
    world.pod()
    world.api.fail("merge", JOB_PATH, ApiError(403, "Forbidden", "denied by a policy"))
    world.edit(ttlSecondsAfterFinished=600)
    assert (await world.reconcile()).retry
    assert (world.status["phase"], world.condition("Running")["reason"]) == ("Running", "Forbidden")
    assert "denied by a policy" in world.condition("Running")["message"]


async def test_a_change_is_for_the_job_of_this_batch_alone(world: World) -> None:
    await started(world)
    stranger = world.api.objects.pop(JOB_PATH)  # the watch has not told of it yet
    world.api.put(JOB_PATH, {**stranger, "metadata": {**stranger["metadata"], "uid": "another"}})
    world.api.put(CR, {**world.api.objects[CR], "spec": {**world.api.objects[CR]["spec"], "suspend": True}})
    world.cache.observe(BATCH, world.api.objects[CR], deleted=False)
    assert (await world.reconciler.reconcile(OWNER)).retry
    assert not world.api.objects[JOB_PATH]["spec"].get("suspend")


async def test_a_batch_that_is_gone_is_no_trouble(world: World) -> None:
    world.remove(CR)
    assert await world.reconcile() == Result()


OUTPUT_PATH = CONFIG_MAP.path("models", "answers")


async def test_a_configmap_for_the_answers_is_there_before_the_job(world: World) -> None:
    world.edit(output={"configMap": {"name": "answers"}})
    await started(world)
    made = world.api.objects[OUTPUT_PATH]
    assert [owner["kind"] for owner in made["metadata"]["ownerReferences"]] == ["PDBatch"]
    assert world.api.names("/models/roles/") == world.api.names("/models/serviceaccounts/") == ["nightly-batch"]
    assert JOB_PATH in world.api.objects
    await world.reconcile()
    assert world.api.requests == {}


async def test_a_batch_without_permission_for_configmaps_is_refused(world: World) -> None:
    world.settings = RenderSettings()
    world.restart()
    world.edit(output={"configMap": {"name": "answers"}})
    await started(world)
    assert OUTPUT_PATH not in world.api.objects
    assert JOB_PATH not in world.api.objects
    running = world.condition("Running")
    assert running["reason"] == "InvalidSpec"
    assert "chart value rbac.batchConfigMaps: true" in running["message"]


async def test_a_batch_that_runs_when_the_right_is_withdrawn_goes_on(world: World) -> None:
    world.edit(output={"configMap": {"name": "answers"}})
    await started(world)
    world.settings = RenderSettings()
    world.restart()
    await world.reconcile()
    assert world.condition("Running")["reason"] != "InvalidSpec"


async def test_a_foreign_configmap_gets_no_permissions(world: World) -> None:
    stranger = world.api.put(OUTPUT_PATH, {"kind": "ConfigMap", "metadata": {"name": "answers"}, "data": {"a": "b"}})
    world.edit(output={"configMap": {"name": "answers"}})
    await started(world)
    assert world.api.objects[OUTPUT_PATH] == stranger
    assert world.api.names("/models/roles/") == []
    assert JOB_PATH not in world.api.objects
    running = world.condition("Running")
    assert running["reason"] == "NameConflict"
    assert "another spec.output.configMap.name" in running["message"]
    del world.api.objects[OUTPUT_PATH]
    await world.reconcile()
    assert JOB_PATH in world.api.objects


@pytest.mark.parametrize("taken", ["serviceaccounts", "roles", "rolebindings", "networkpolicies"])
async def test_no_job_before_all_else_is_known_to_be_ours(world: World, taken: str) -> None:
    kind = next(kind for kind in CHILDREN if kind.plural == taken)
    path = kind.path("models", "nightly-batch")
    world.api.put(path, {"metadata": {"name": "nightly-batch", "namespace": "models"}})
    world.edit(output={"configMap": {"name": "answers"}})
    await started(world)
    assert JOB_PATH not in world.api.objects
    running = world.condition("Running")
    assert running["reason"] == "NameConflict"
    assert "Until then Job nightly-batch" in running["message"]
    del world.api.objects[path]
    world.sync()
    await world.reconcile()
    assert JOB_PATH in world.api.objects


async def test_an_operator_that_died_before_the_job_goes_on(world: World) -> None:
    world.edit(output={"configMap": {"name": "answers"}})
    world.serve()
    world.api.fail("apply", JOB_PATH, ApiError(500, "InternalError", "killed here"))
    await world.reconcile()
    world.restart()
    world.api.objects[OUTPUT_PATH]["data"] = {"output.jsonl": "kept"}
    await world.reconcile()
    assert JOB_PATH in world.api.objects
    assert world.api.objects[OUTPUT_PATH]["data"] == {"output.jsonl": "kept"}


async def test_a_forbidden_write_is_reported(world: World) -> None:
    world.edit(output={"configMap": {"name": "answers"}})
    refusal = ApiError(403, "Forbidden", "cannot create resource configmaps")
    world.api.fail("create", CONFIG_MAP.path("models"), refusal, refusal)
    await started(world)
    assert world.condition("Running")["reason"] == "Forbidden"
    assert "cannot create resource configmaps" in world.condition("Running")["message"]
