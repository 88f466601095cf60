"""The real HPA controller on the operator's external metrics API."""

import ssl
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pdinference.cluster.kinds import SCALER
from pdinference.loadmetrics.metrics_api.group import GROUP, VERSION
from tests.integration import aggregated
from tests.integration.operators import Operators
from tests.integration.scaling_world import SCALED, ScalingWorld, served
from tests.integration.vllm_metrics import Decoding, Load
from tests.waiting import until

HPA_USER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"


async def serving(scaling: ScalingWorld, load: Load, **spec: Any) -> None:
    """Roll out, and let the HPA see the load of the one D pod."""
    await scaling.start()
    await aggregated.available(scaling.world)
    await scaling.world.apply(decode={**SCALED, **spec})
    await scaling.world.serving()
    await scaling.bring_up(load)
    await scaling.sees()


async def shown(scaling: ScalingWorld, load: str) -> None:
    """Wait until the status has this load of D."""

    async def so() -> bool:
        return load in (await scaling.world.status())["roles"]["decode"]["scaling"]

    await until(so, f"the status has {load}")


async def report(scaling: ScalingWorld, load: Load) -> None:
    """All D pods have this load from now on."""
    for pod in await scaling.bring_up(Load()):
        pod.load = replace(load)


class TestFollows:
    async def test_the_kv_demand_up_and_down(self, scaling: ScalingWorld, tmp_path: Path) -> None:
        await serving(scaling, Load(kv_usage=0.5))
        await expect_metrics_for_the_hpa_controller_alone(scaling, tmp_path)
        await scaling.stays(1)
        (first,) = await scaling.bring_up(Load())
        first.load = Load(kv_usage=1.0, waiting=4, running=10)  # a request holds 1280 of 12800 tokens
        await scaling.scaled_to(2)
        await served(scaling, "1400m")  # at first as much as two pods at their target have
        await report(scaling, Load(kv_usage=0.7))
        await scaling.stays(2)
        await report(scaling, Load(kv_usage=0.3))
        await scaling.scaled_to(1)
        await scaling.world.says("Autoscaling", "True ")
        assert (await scaling.world.condition("Autoscaling"))["reason"] in {"Active", "TooFewReplicas"}
        await shown(scaling, "kvDemand")
        await until(lambda: has_events(scaling), "there are Events of both")

    async def test_the_larger_answer_of_the_presets_two_metrics(
        self, scaling: ScalingWorld, operators: Operators
    ) -> None:
        """Decode load and KV usage, each in turn; and with one of them missing, the other brings pods and none goes."""
        by_preset = {field: value for field, value in SCALED["autoscaling"].items() if field != "targets"}
        await serving(scaling, Decoding(running=1), autoscaling=by_preset)
        metrics = [metric["external"]["metric"]["name"] for metric in (await scaling.hpa())["spec"]["metrics"]]
        assert metrics == ["pdinference_decode_load", "pdinference_kv_usage"]
        await expect_busy_pods_to_be_as_busy_to_the_next_operator(scaling, operators)
        pods = Decoding(running=4)
        await report(scaling, replace(pods, kv_usage=0.95))  # a decode load of 95 % is within the HPA's tolerance
        await scaling.scaled_to(2)
        await report(scaling, replace(pods, kv_usage=0.1))
        await scaling.scaled_to(1)
        await report(scaling, replace(pods, kv_usage=0.5, waiting=2))  # half a cache, and a decode load of 100 %
        await scaling.scaled_to(2)
        await report(scaling, Load(kv_usage=0.1))  # its counters are gone
        await shown(scaling, "decodeLoad ?/90%, kvUsage ")
        await scaling.world.says(
            "Autoscaling", "False FailedGetExternalMetric: ", "do not report pdinference_decode_load"
        )
        await scaling.stays(2)
        await report(scaling, Load(kv_usage=0.98))
        await scaling.scaled_to(3)
        await scaling.world.says("Autoscaling", "True ", "No scale-down while decodeLoad cannot be read.")


async def has_events(scaling: ScalingWorld) -> bool:
    path = f"/apis/events.k8s.io/v1/namespaces/{scaling.world.namespace}/events"
    events = (await scaling.world.api.get(path))["items"]
    return {"ScaledUp", "ScaledDown"} <= {e["reason"] for e in events if e["regarding"]["name"] == "llama"}


async def expect_busy_pods_to_be_as_busy_to_the_next_operator(scaling: ScalingWorld, operators: Operators) -> None:
    async def noted() -> bool:
        target = await scaling.world.get(SCALER, "llama-decode") or {}
        return "baselineInterTokenMicroseconds" in target.get("status", {})

    await until(noted, "the baseline latency of an idle pod is reported")
    # Tokens take three times as long: that pod does 1 - (1 - 0.3) / 3 of what it can.
    await report(scaling, Decoding(kv_usage=0.3, running=10, token_seconds=0.03))
    await served(scaling, "767m", "pdinference_decode_load")
    operators.kill_all()
    await scaling.start()
    answers = set()

    async def as_before() -> bool:
        answers.add(answer := await scaling.value("pdinference_decode_load"))
        return answer == "767m"

    await until(as_before, "the next operator knows the load")
    # Until it has read the pod for 15 s, the pod counts as one at its target.
    assert {answer for answer in answers if answer.endswith("m")} <= {"900m", "767m"}


class TestUnknownLoad:
    """Of one pod or of all: no pod comes and none goes."""

    async def test_an_unknown_load_changes_nothing_and_is_named(
        self, scaling: ScalingWorld, operators: Operators
    ) -> None:
        await serving(scaling, Load(kv_usage=1.5))  # as if half a cache were wanted besides
        await scaling.scaled_to(2)
        await report(scaling, Load(kv_usage=0.7))
        await served(scaling, "1400m")
        await expect_a_frozen_pod_to_count_as_at_its_target(scaling)
        await expect_a_metric_that_vanishes_to_stop_scaling(scaling)
        await expect_scaling_to_go_on_with_an_invalid_spec(scaling)
        await expect_the_counts_to_stay_without_an_operator(scaling, operators)
        await expect_another_server_to_be_named_and_left_alone(scaling)
        await expect_a_pod_that_refuses_connections_to_be_named(scaling)


async def expect_a_frozen_pod_to_count_as_at_its_target(scaling: ScalingWorld) -> None:
    """It takes connections, and does not answer."""
    _, other = await scaling.bring_up(Load())
    other.freeze()
    await served(scaling, "1500m")  # what it reported last is too old after 20 seconds
    await scaling.stays(2)
    other.thaw()
    await served(scaling, "1400m")
    await scaling.stays(2)


async def expect_a_metric_that_vanishes_to_stop_scaling(scaling: ScalingWorld) -> None:
    await report(scaling, Load(kv_usage=None))
    await scaling.world.says("Autoscaling", "False FailedGetExternalMetric: ", "do not report pdinference_kv_demand")
    await scaling.stays(2)


async def expect_scaling_to_go_on_with_an_invalid_spec(scaling: ScalingWorld) -> None:
    # The API server lets this through, and there is no webhook here.
    await scaling.world.apply(engine={"args": {"no-such-option": 1}})
    assert "spec.engine.args.no-such-option" in await scaling.world.refusal_of()
    await report(scaling, Load(kv_usage=1.2))
    await scaling.scaled_to(3)
    await report(scaling, Load(kv_usage=0.7))


async def expect_the_counts_to_stay_without_an_operator(scaling: ScalingWorld, operators: Operators) -> None:
    await scaling.bring_up(Load(kv_usage=0.7))
    operators.kill_all()
    await scaling.sees("False")
    await scaling.stays(3)


async def expect_another_server_to_be_named_and_left_alone(scaling: ScalingWorld) -> None:
    """An operator starts while KEDA has the API group. Later the group is its own, and the spec is still invalid."""
    await aggregated.register(scaling.world, "keda", "keda-operator-metrics-apiserver")
    await scaling.start()
    await scaling.world.says("Autoscaling", "False MetricsApiElsewhere: ", "keda/keda-operator-metrics-apiserver")
    await scaling.stays(3)
    found = await scaling.world.api.get("/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io")
    assert "caBundle" not in found["spec"]
    await scaling.register()
    await scaling.world.says("Autoscaling", "True ")
    assert "spec.engine.args.no-such-option" in await scaling.world.refusal_of()
    await shown(scaling, "kvDemand 72%/80%")  # in tenths of the target
    await scaling.stays(3)


async def expect_a_pod_that_refuses_connections_to_be_named(scaling: ScalingWorld) -> None:
    *_, last = await scaling.bring_up(Load())
    await last.stop()
    # 2 pods could not bear that, and nobody says that 4 are needed.
    await served(scaling, "2200m")
    await scaling.world.says("Autoscaling", "True ", "No metrics from these pods")
    await scaling.stays(3)


async def expect_metrics_for_the_hpa_controller_alone(scaling: ScalingWorld, folder: Path) -> None:
    """Straight to the operator's port, past the API server."""
    found = await scaling.world.api.get(f"/apis/{GROUP}/{VERSION}")
    assert {"pdinference_kv_demand", "pdinference_prefill_load"} <= {r["name"] for r in found["resources"]}
    pki = scaling.world.cluster.spec.folder / "pki"
    stranger = certificate(folder, "front-proxy-client", None, pki)
    unnamed = certificate(folder, "somebody-else", "front-proxy-ca", pki)
    proxy = (pki / "front-proxy-client.crt", pki / "front-proxy-client.key")
    assert await ask(scaling, None, HPA_USER) == 401
    assert await ask(scaling, unnamed, HPA_USER) == 401
    assert await ask(scaling, proxy, "") == 401
    assert await ask(scaling, proxy, "jane") == 403
    assert await ask(scaling, proxy, HPA_USER) == 200
    with pytest.raises(aiohttp.ClientError):
        await ask(scaling, stranger, HPA_USER)


Pair = tuple[Path, Path]


def certificate(folder: Path, name: str, authority: str | None, pki: Path) -> Pair:
    """A client certificate, of one of the cluster's authorities or self-signed."""
    key, made = folder / f"{name}.key", folder / f"{name}.crt"
    line = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days"]
    line += ["2", "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(made)]
    if authority is not None:
        line += ["-CA", str(pki / f"{authority}.crt"), "-CAkey", str(pki / f"{authority}.key")]
    subprocess.run(line, check=True, capture_output=True)
    return made, key


async def ask(scaling: ScalingWorld, client: Pair | None, user: str) -> int:
    """The status of the answer."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if client is not None:
        context.load_cert_chain(*client)
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{scaling.world.namespace}/pdinference_kv_demand"
    query = "labelSelector=pdinference.io/name%3Dllama,pdinference.io/role%3Ddecode"
    headers = {"X-Remote-User": user, "X-Remote-Group": "system:authenticated"} if user else {}
    url = f"https://{scaling.world.cluster.host_address}:{scaling.port}{path}?{query}"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers, ssl=context) as response,
    ):
        return response.status
