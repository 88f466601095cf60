"""Diagnosis names the pod, the reason, and the command to run next."""

import pytest

from pdinference.api.names import GROUP_BROKEN_EXIT, Role
from pdinference.planning.observed import PREPARING_MODEL, PodProblem, PodSummary
from pdinference.planning.pod_diagnosis import diagnose, most_severe


def pod(problem: PodProblem | None = None, *, name: str = "p-0", restarts: int = 0, ready: bool = False) -> PodSummary:
    return PodSummary(name, Role.PARAMETER, "r1", "Running", ready=ready, restarts=restarts, problem=problem)


def test_a_crash_loop_points_to_the_log_of_the_run_that_ended() -> None:
    problem = PodProblem("CrashLoopBackOff", "Error", "vllm", exit_code=1, restarts=3)
    reason, message = diagnose(pod(problem, restarts=3), "ns")
    assert reason == "CrashLooping"
    assert "container vllm stops repeatedly, last with exit code 1." in message
    assert "kubectl logs -n ns p-0 -c vllm --previous" in message


@pytest.mark.parametrize(
    ("restarts", "exit_code", "last_words", "message"),
    [
        (0, None, "", "stopped. See why: `kubectl logs -n ns p-0 -c vllm`."),
        (
            1,
            0,
            "",
            "stopped with exit code 0. See why: `kubectl logs -n ns p-0 -c vllm --previous`.",
        ),
        (
            2,
            None,
            "no",
            "stopped. Its log says: «no». See why: `kubectl logs -n ns p-0 -c vllm --p",
        ),
    ],
)
def test_a_crash_has_the_log_of_the_run_that_crashed(
    restarts: int, exit_code: int | None, last_words: str, message: str
) -> None:
    problem = PodProblem("Error", "", "vllm", exit_code=exit_code, last_words=last_words)
    assert diagnose(pod(problem, restarts=restarts), "ns").message.startswith(f"Pod p-0: container vllm {message}")


@pytest.mark.parametrize(("said", "quoted"), [("", "x:1."), ("denied. ", "x:1 (denied).")])
def test_the_kubelets_reason_is_quoted_if_there_is_one(said: str, quoted: str) -> None:
    message = diagnose(pod(PodProblem("ErrImagePull", said, "vllm", "x:1")), "ns").message
    assert message.startswith(f"Pod p-0 cannot get the image {quoted} Check the image")


@pytest.mark.parametrize(
    ("restarts", "expected"), [(0, "CrashLoopBackOff"), (1, "CrashLoopBackOff"), (2, "CrashLooping")]
)
def test_a_container_in_back_off_loops_from_its_third_stop_on(restarts: int, expected: str) -> None:
    problem = PodProblem("CrashLoopBackOff", "Error", "vllm", exit_code=1, restarts=restarts)
    assert diagnose(pod(problem, restarts=restarts), "ns").reason == expected


def test_a_crash_loop_has_the_same_message_after_each_crash() -> None:
    crashed = [PodProblem("CrashLoopBackOff", "Error", "vllm", exit_code=1, restarts=count) for count in (2, 3, 40)]
    assert len({diagnose(pod(problem, restarts=problem.restarts), "ns") for problem in crashed}) == 1


def test_an_image_pull_keeps_reason_and_message_during_retries() -> None:
    """The texts are those of Kubernetes 1.34, pkg/kubelet/images/image_manager.go."""
    fails = PodProblem("ErrImagePull", "pull access denied", "vllm", "x:1")
    waits = PodProblem(
        "ImagePullBackOff", 'Back-off pulling image "x:1": ErrImagePull: pull access denied', "vllm", "x:1"
    )
    assert diagnose(pod(fails), "ns") == diagnose(pod(waits), "ns")
    assert diagnose(pod(waits), "ns").reason == "ImagePullBackOff"
    down = PodProblem("RegistryUnavailable", "connection refused", "vllm", "x:1")
    assert diagnose(pod(down), "ns").reason == "ImagePullBackOff"
    older = PodProblem("ImagePullBackOff", 'Back-off pulling image "x:1"', "vllm", "x:1")
    assert "cannot get the image x:1. Check" in diagnose(pod(older), "ns").message


def test_all_missing_devices_are_listed() -> None:
    said = "1 Insufficient nvidia.com/gpu, 1 Insufficient rdma/ib, 1 had untolerated taint."
    message = diagnose(pod(PodProblem("Unschedulable", said)), "ns").message
    assert (
        "No node has enough free nvidia.com/gpu and rdma/ib (all devices of a pod must be on one node). If these"
        in message
    )


def test_out_of_memory_names_the_field_to_raise() -> None:
    for problem in (PodProblem("OOMKilled", "", "vllm"), PodProblem("CrashLoopBackOff", "OOMKilled", "vllm")):
        assert "spec.parameter.resources.limits" in diagnose(pod(problem, restarts=1), "ns").message


def test_of_a_batch_runner_only_fields_that_it_has_are_named() -> None:
    killed = PodSummary("b", None, "", "Failed", problem=PodProblem("OOMKilled", "", "runner"))
    assert "Raise the memory limit in spec.resources.limits. " in diagnose(killed, "ns").message
    tainted = PodSummary("b", None, "", problem=PodProblem("Unschedulable", "1 node had untolerated taint."))
    assert diagnose(tainted, "ns").message == "Pod b fits on no node: 1 node had untolerated taint."


def test_an_unschedulable_pod_quotes_the_scheduler() -> None:
    said = '0/2 nodes are available: persistentvolumeclaim "models" not found.'
    reason, message = diagnose(pod(PodProblem("Unschedulable", said)), "ns")
    assert reason == "Unschedulable"
    assert 'persistentvolumeclaim "models" not found' in message


def test_an_image_that_cannot_be_pulled_is_named() -> None:
    assert "r.io/x:1" in diagnose(pod(PodProblem("ErrImagePull", "denied", "vllm", "r.io/x:1")), "ns").message


@pytest.mark.parametrize(
    "said", ['secret "hub" not found', 'configmap "tpl" not found', "couldn't find key token in Secret ns/hub"]
)
def test_an_absent_secret_or_config_map_is_quoted_with_what_to_do(said: str) -> None:
    """The texts are those of Kubernetes 1.36, pkg/kubelet/kubelet_pods.go."""
    reason, message = diagnose(pod(PodProblem("CreateContainerConfigError", said, "vllm")), "ns")
    assert reason == "CreateContainerConfigError"
    assert f"({said}). Create it in namespace ns, and the pod starts; or correct its name or key" in message


def test_another_configuration_error_is_quoted_without_advice_on_secrets() -> None:
    problem = PodProblem("CreateContainerConfigError", "container has runAsNonRoot and image will run as root", "vllm")
    assert diagnose(pod(problem), "ns").message.endswith("image will run as root).")


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        (Role.PARAMETER, "set spec.parameter.podTemplate.spec.imagePullSecrets."),
        (Role.ROUTER, "set spec.router.podTemplate.spec.imagePullSecrets."),
        (Role.MODEL, "set spec.decode.podTemplate.spec.imagePullSecrets."),
        (None, "set spec.router.podTemplate.spec.imagePullSecrets of the PDInference, and create the batch again."),
    ],
)
def test_a_login_of_a_registry_is_advised_with_its_field(role: Role | None, expected: str) -> None:
    unwell = PodSummary("p", role, "", problem=PodProblem("ErrImagePull", "unauthorized", "c", "r.io/x:1"))
    message = diagnose(unwell, "ns", Role.DECODE).message
    assert message.endswith(f"If the registry needs a login, {expected}")


def test_a_pod_without_trouble_is_starting() -> None:
    assert diagnose(pod(), "ns").reason == "Starting"


def test_a_router_pod_waits_for_the_others() -> None:
    waits = PodSummary("x-router-1", Role.ROUTER, "r1", "Running")
    message = diagnose(waits, "ns").message
    assert "waits until it can send requests to ready P and D pods" in message
    assert "`kubectl logs -n ns x-router-1`" in message


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing"])
def test_a_pod_without_started_containers_has_a_command_to_see_why(reason: str) -> None:
    """For example, a node lacks the folder of the model: the kubelet reports this in an Event only."""
    found = diagnose(pod(PodProblem(reason)), "ns")
    assert found.reason == "Starting"
    assert "If this takes long, see `kubectl describe -n ns pod p-0`." in found.message


def test_a_crash_is_worse_than_a_slow_start() -> None:
    found = most_severe([pod(name="z"), pod(PodProblem("CrashLoopBackOff", "", "vllm"), name="a"), pod(name="y")], "ns")
    assert found is not None
    assert "Pod a" in found.message


def test_ready_and_leaving_pods_need_no_advice() -> None:
    leaving = PodSummary("q", Role.DECODE, "r1", terminating=True)
    assert most_severe([pod(ready=True), leaving], "ns") is None


def test_a_crash_quotes_what_the_container_said_last() -> None:
    problem = PodProblem("Error", "", "vllm", exit_code=2, last_words="error: unrecognized arguments: --no-such-flag")
    assert "«error: unrecognized arguments: --no-such-flag»" in diagnose(pod(problem), "ns").message


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            137,
            "stopped by SIGKILL (exit code 137). It was killed from outside: by the kubelet (a failed liveness probe,",
        ),
        (
            143,
            "stopped by SIGTERM (exit code 143). It was asked to end. See the Events: `kubectl describe -n ns pod p-0`",
        ),
        (132, "stopped by SIGILL (exit code 132). The image has instructions that the CPU of this node lacks."),
        (139, "stopped by SIGSEGV (exit code 139). See why: `kubectl logs -n ns p-0 -c vllm`."),
    ],
)
def test_a_signal_is_named_with_what_it_means(code: int, said: str) -> None:
    message = diagnose(pod(PodProblem("Error", "", "vllm", exit_code=code)), "ns").message
    assert message.startswith(f"Pod p-0: container vllm {said}")


def test_a_process_that_reports_the_end_of_another_one_is_not_quoted() -> None:
    said = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
    message = diagnose(pod(PodProblem("Error", "", "vllm", exit_code=1, last_words=said), restarts=1), "ns").message
    assert "RuntimeError" not in message
    assert "See the first error: `kubectl logs -n ns p-0 -c vllm --previous | grep -m 20 ERROR`." in message
    stopped = pod(PodProblem("Error", "", "vllm", exit_code=1, last_words=said), restarts=1)
    assert (
        "See the first error: `kubectl pdi doctor x -n ns`, or `kubectl logs"
        in diagnose(stopped, "ns", resource="x").message
    )


def test_a_folder_that_the_image_lacks_is_named_with_its_field() -> None:
    """The last words are those of vLLM 0.32 for such a path."""
    said = (
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
        "'/models/tiny-2'. Use `repo_type` argument if needed."
    )
    message = diagnose(pod(PodProblem("Error", "", "vllm", exit_code=1, last_words=said)), "ns").message
    assert "The image has no folder /models/tiny-2: correct spec.model.source.path, or take an image" in message
    other = said.replace("/models/tiny-2", "a/b/c")
    assert "folder" not in diagnose(pod(PodProblem("Error", "", "vllm", last_words=other)), "ns").message


def test_a_pod_that_starts_again_has_the_log_of_the_run_before() -> None:
    message = diagnose(pod(restarts=1), "ns").message
    assert message == (
        "Pod p-0 is starting again, because a container has stopped. See why: `kubectl logs -n ns p-0 --previous`."
    )
    assert message == diagnose(pod(restarts=7), "ns").message


class TestSchedulerMessages:
    """The scheduler's own words are followed by what to look at; they are those of Kubernetes 1.34."""

    @pytest.mark.parametrize(
        ("said", "advised"),
        [
            ("1 cannot allocate all claims.", "the free devices of spec.parameter.accelerator.devices"),
            ("request accelerators: device class x does not exist.", "devices.deviceClassName"),
            ("1 Insufficient amd.com/gpu, 1 Insufficient cpu.", "No node has enough free amd.com/gpu "),
            ("2 Insufficient nvidia.com/gpu.", "No node has enough free nvidia.com/gpu (all"),
            ("2 node(s) didn't match Pod's node affinity/selector.", "accelerator.products"),
            ("1 node(s) had untolerated taint(s).", "spec.parameter.placement.tolerations"),
            ('persistentvolumeclaim "models" not found.', "Create the claim in the namespace of the pods"),
            ("pod has unbound immediate PersistentVolumeClaims.", "`kubectl describe pvc` says why"),
            ("1 node(s) didn't match PersistentVolume's node affinity.", "compare `kubectl describe pv` with spec.par"),
            ("1 node(s) didn't match pod affinity rules.", "spec.colocation"),
            ("1 node(s) didn't match pod topology spread constraints.", "placement.topologySpread"),
        ],
    )
    def test_each_reason_gets_its_advice(self, said: str, advised: str) -> None:
        message = diagnose(pod(PodProblem("Unschedulable", f"0/2 nodes are available: {said}")), "ns").message
        assert said in message
        assert advised in message

    @pytest.mark.parametrize("before", [". ", ". no new claims to deallocate, ", ". still not schedulable, "])
    def test_what_preemption_would_do_is_left_out(self, before: str) -> None:
        said = f"0/1 nodes are available: 1 Insufficient cpu{before}preemption: 0/1 nodes are available: 1 No victims."
        message = diagnose(pod(PodProblem("Unschedulable", said)), "ns").message
        assert message == "Pod p-0 fits on no node: 0/1 nodes are available: 1 Insufficient cpu."


def test_a_pod_that_prepares_its_model_names_the_log_with_progress() -> None:
    reason, message = diagnose(pod(PodProblem(PREPARING_MODEL, container="pdinference-model")), "ns")
    assert reason == PREPARING_MODEL
    assert "downloads or checks its model" in message
    assert "kubectl logs -n ns p-0 -c pdinference-model" in message


def test_the_job_for_the_model_is_placed_by_the_fields_of_p() -> None:
    said = "0/2 nodes are available: 2 node(s) had untolerated taint {gpu: true}."
    stuck = PodSummary("x-model-1", Role.MODEL, "", problem=PodProblem("Unschedulable", said))
    assert "spec.parameter.placement.tolerations" in diagnose(stuck, "ns").message


def test_the_node_that_failed_is_named_and_not_those_that_restart_with_it() -> None:
    broken = PodProblem("CrashLoopBackOff", "", "vllm", exit_code=GROUP_BROKEN_EXIT, last_words="node 1 is gone")
    failed = PodProblem("CrashLoopBackOff", "", "vllm", exit_code=1, last_words="ValueError: no such layer")
    found = most_severe([pod(broken, name="x-parameter-r-0"), pod(failed, name="x-node1-r-0")], "ns")
    assert found is not None
    assert "x-node1-r-0" in found.message
