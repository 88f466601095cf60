"""The real HPA controller on the operator's external metrics API."""

import ssl
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pdinference.cluster.kinds import SCALER
from pdinference.loadmetrics.metrics_api.api import GROUP, VERSION
from tests.integration.operators import Operators
from tests.integration.scaling_world import SCALED, ScalingWorld, condition
from tests.integration.vllm_metrics import Decoding, Load
from tests.integration.world import until

HPA_USER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"


async def serving(scaling: ScalingWorld, load: Load, **spec: Any) -> None:
    """Roll out, and let the HPA see the load of the one D pod."""
    await scaling.start()
    await scaling.available()
    await scaling.world.apply(decode={**SCALED, **spec})
    await scaling.world.serving()
    await scaling.bring_up(load)

    async def seen() -> bool:
        return bool(condition(await scaling.hpa(), "ScalingActive").get("status") == "True")

    await until(seen, "the HPA sees the load")


async def autoscaling(scaling: ScalingWorld, status: str, reason: str = "") -> dict[str, Any]:
    """Wait for a status of the condition Autoscaling."""

    async def is_so() -> bool:
        told = await scaling.world.condition("Autoscaling")
        return bool(told.get("status") == status and reason in {"", told["reason"]})

    await until(is_so, f"the condition Autoscaling is {status} {reason}")
    return await scaling.world.condition("Autoscaling")


async def test_the_hpa_follows_the_kv_demand_up_and_down(scaling: ScalingWorld) -> None:
    await serving(scaling, Load(kv_usage=0.5))
    await scaling.looks(3)
    assert await scaling.pods_wanted() == 1
    (first,) = await scaling.bring_up(Load())
    first.load = Load(kv_usage=1.0, waiting=4, running=10)  # a request holds 1280 of 12800 tokens
    await scaling.scaled_to(2)
    assert await scaling.value() == "1400m"
    for pod in await scaling.bring_up(Load()):
        pod.load = Load(kv_usage=0.7)
    await scaling.looks(3)
    await scaling.scaled_to(2)
    for pod in await scaling.bring_up(Load()):
        pod.load = Load(kv_usage=0.3)
    await scaling.scaled_to(1)
    told = await autoscaling(scaling, "True")
    assert told["reason"] in {"Active", "TooFewReplicas"}
    await until(lambda: shown(scaling, "kvDemand"), "the load is in the status")

    async def told_in_events() -> bool:
        path = f"/apis/events.k8s.io/v1/namespaces/{scaling.world.namespace}/events"
        events = (await scaling.world.api.get(path))["items"]
        return {"ScaledUp", "ScaledDown"} <= {e["reason"] for e in events if e["regarding"]["name"] == "llama"}

    await until(told_in_events, "Events tell of both")


async def shown(scaling: ScalingWorld, load: str) -> bool:
    """Whether the status shows this load of D."""
    return load in (await scaling.world.status())["roles"]["decode"]["scaling"]


async def test_of_the_presets_two_metrics_the_larger_answer_decides(scaling: ScalingWorld) -> None:
    """Decode load and KV usage, each in turn; and with one of them missing, the other brings pods and none goes."""
    by_preset = {field: value for field, value in SCALED["autoscaling"].items() if field != "targets"}
    await serving(scaling, Decoding(running=4), autoscaling=by_preset)
    metrics = [metric["external"]["metric"]["name"] for metric in (await scaling.hpa())["spec"]["metrics"]]
    assert metrics == ["pdinference_decode_load", "pdinference_kv_usage"]

    async def told_to_all(**changes: Any) -> None:
        for pod in await scaling.bring_up(Decoding(running=4)):
            pod.load = replace(pod.load, **changes)

    await told_to_all(kv_usage=0.95)  # a decode load of 95 % is within the HPA's tolerance of 90 %
    await scaling.scaled_to(2)
    await told_to_all(kv_usage=0.1)
    await scaling.scaled_to(1)
    await told_to_all(kv_usage=0.5, waiting=2)  # half a cache, and a decode load of 100 %
    await scaling.scaled_to(2)
    for pod in await scaling.bring_up(Load()):
        pod.load = Load(kv_usage=0.1)  # its counters are gone
    await until(lambda: shown(scaling, "decodeLoad ?/90%, kvUsage "), "one load is unknown")
    told = await autoscaling(scaling, "False", "FailedGetExternalMetric")
    assert "do not report pdinference_decode_load yet" in told["message"]
    await scaling.looks(3)
    assert await scaling.pods_wanted() == 2
    for pod in await scaling.bring_up(Load()):
        pod.load = Load(kv_usage=0.98)
    await scaling.scaled_to(3)
    told = await autoscaling(scaling, "True")
    assert "No scale-down while decodeLoad cannot be read." in told["message"]


async def test_a_pod_that_falls_silent_changes_nothing_and_is_named(scaling: ScalingWorld) -> None:
    await serving(scaling, Load(kv_usage=1.5))  # as if half a cache were wanted besides
    await scaling.scaled_to(2)
    one, other = await scaling.bring_up(Load())
    one.load = other.load = Load(kv_usage=0.5)

    async def told(value: str) -> bool:
        return await scaling.value() == value

    await until(lambda: told("1000m"), "both tell")
    await other.stop()
    # Half a cache and a pod at its target of 80 %: 1 pod could not bear that, and nobody says that 3 are needed.
    await until(lambda: told("1300m"), "one is known to be silent")
    await scaling.looks(3)
    assert await scaling.pods_wanted() == 2

    async def named() -> bool:
        return "No metrics from these pods" in (await scaling.world.condition("Autoscaling")).get("message", "")

    await until(named, "the condition names the pod")


async def test_a_frozen_pod_changes_no_count_and_counts_again_when_it_recovers(
    scaling: ScalingWorld,
) -> None:
    await serving(scaling, Load(kv_usage=1.5))
    await scaling.scaled_to(2)
    one, other = await scaling.bring_up(Load())
    one.load = other.load = Load(kv_usage=0.7)

    async def told(value: str) -> bool:
        return await scaling.value() == value

    await until(lambda: told("1400m"), "both tell")
    other.freeze()
    # What it told last is forgotten after 20 seconds; then it is taken to be at its target of 80 %.
    await until(lambda: told("1500m"), "what it told is too old")
    await scaling.looks(3)
    assert await scaling.pods_wanted() == 2
    other.thaw()
    await until(lambda: told("1400m"), "it tells again")
    await scaling.looks(3)
    assert await scaling.pods_wanted() == 2


async def test_a_metric_that_vanishes_stops_scaling_and_says_so(scaling: ScalingWorld) -> None:
    await serving(scaling, Load(kv_usage=1.5))
    await scaling.scaled_to(2)
    for pod in await scaling.bring_up(Load()):
        pod.load = Load(kv_usage=None)
    told = await autoscaling(scaling, "False", "FailedGetExternalMetric")
    assert "do not report pdinference_kv_demand yet" in told["message"]
    await scaling.looks(3)
    assert await scaling.pods_wanted() == 2


async def test_an_invalid_edit_does_not_blind_the_hpa(scaling: ScalingWorld, operators: Operators) -> None:
    await serving(scaling, Load(kv_usage=0.5))
    # The API server lets this through, and there is no webhook here.
    await scaling.world.apply(engine={"args": {"no-such-option": 1}})
    assert "spec.engine.args.no-such-option" in await scaling.world.refusal_of()
    (pod,) = await scaling.bring_up(Load())
    pod.load = Load(kv_usage=1.5)
    await scaling.scaled_to(2)
    for pod in await scaling.bring_up(Load()):
        pod.load = Load(kv_usage=0.7)
    operators.kill_all()
    await scaling.start()
    await autoscaling(scaling, "True")
    assert "spec.engine.args.no-such-option" in await scaling.world.refusal_of()
    await until(lambda: shown(scaling, "kvDemand 72%/80%"), "its load is told, in tenths of the target")
    assert await scaling.pods_wanted() == 2


async def test_while_the_operator_is_down_the_number_of_pods_stays(scaling: ScalingWorld, operators: Operators) -> None:
    await serving(scaling, Load(kv_usage=1.5))
    await scaling.scaled_to(2)
    await scaling.bring_up(Load(kv_usage=0.7))
    operators.kill_all()

    async def blind() -> bool:
        return bool(condition(await scaling.hpa(), "ScalingActive").get("status") == "False")

    await until(blind, "the HPA is blind")
    await scaling.looks(3)
    assert await scaling.pods_wanted() == 2
    for pod in await scaling.bring_up(Load()):
        pod.load = Load(kv_usage=0.7)
    await scaling.start()
    await autoscaling(scaling, "True")
    await scaling.looks(3)
    assert await scaling.pods_wanted() == 2


async def test_a_new_operator_computes_the_same_load_of_busy_pods(scaling: ScalingWorld, operators: Operators) -> None:
    await serving(scaling, Decoding(running=1), autoscaling={**SCALED["autoscaling"], "targets": {"decodeLoad": 90}})

    async def noted() -> bool:
        target = await scaling.world.get(SCALER, "llama-decode") or {}
        return "baselineInterTokenMicroseconds" in target.get("status", {})

    await until(noted, "the baseline latency of an idle pod is reported")
    (pod,) = await scaling.bring_up(Load())
    # Tokens take three times as long: that pod does 1 - (1 - 0.3) / 3 of what it can.
    pod.load = Decoding(kv_usage=0.3, running=10, token_seconds=0.03)
    await until(lambda: told(scaling, "767m"), "the pod is busy")
    operators.kill_all()
    await scaling.start()
    answers = set()

    async def answered() -> bool:
        answers.add(await scaling.value("pdinference_decode_load"))
        return any(answer.endswith("m") for answer in answers)

    await until(answered, "the next operator knows the load")
    assert {answer for answer in answers if answer.endswith("m")} == {"767m"}


async def told(scaling: ScalingWorld, value: str) -> bool:
    return await scaling.value("pdinference_decode_load") == value


async def test_where_another_server_has_the_group_the_condition_says_so(scaling: ScalingWorld) -> None:
    await scaling.register("keda", "keda-operator-metrics-apiserver")
    await scaling.start()
    await scaling.world.apply(decode=SCALED)
    await scaling.world.serving()
    told = await autoscaling(scaling, "False", "MetricsApiElsewhere")
    assert "keda/keda-operator-metrics-apiserver" in told["message"]
    found = await scaling.world.api.get("/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io")
    assert "caBundle" not in found["spec"]


class TestWhoMayAsk:
    """Straight to the operator's port, past the API server."""

    async def test_only_the_api_server_and_whom_it_names(self, scaling: ScalingWorld, tmp_path: Path) -> None:
        await serving(scaling, Load(kv_usage=0.5))
        pki = scaling.world.cluster.spec.folder / "pki"
        stranger = certificate(tmp_path, "front-proxy-client", None, pki)
        unnamed = certificate(tmp_path, "somebody-else", "front-proxy-ca", pki)
        proxy = (pki / "front-proxy-client.crt", pki / "front-proxy-client.key")
        assert await ask(scaling, None, HPA_USER) == 401
        assert await ask(scaling, unnamed, HPA_USER) == 401
        assert await ask(scaling, proxy, "") == 401
        assert await ask(scaling, proxy, "jane") == 403
        assert await ask(scaling, proxy, HPA_USER) == 200
        with pytest.raises(aiohttp.ClientError):
            await ask(scaling, stranger, HPA_USER)

    async def test_the_documents_of_discovery(self, scaling: ScalingWorld) -> None:
        await scaling.start()
        await scaling.available()
        found = await scaling.world.api.get(f"/apis/{GROUP}/{VERSION}")
        assert {"pdinference_kv_demand", "pdinference_prefill_load"} <= {r["name"] for r in found["resources"]}


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
