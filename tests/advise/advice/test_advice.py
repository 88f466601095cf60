"""Whole advices on small questions."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pdinference.checks import examine
from pdinference.manifests import RenderSettings
from pdinference.performance.calibration import TimeSource
from pdinference_advise.advice.advice import Question, advise, fitting
from pdinference_advise.advice.as_json import as_json
from pdinference_advise.advice.errors import ERRORS
from pdinference_advise.advice.problem import AdviceError
from pdinference_advise.advice.trial import Task, Trial, run_trial
from pdinference_advise.advice.verdict import Answer, FirstLimit, limit_of
from pdinference_advise.advice.workload.trace import Trace
from tests.advise.advice.questions import QUICK, answer, llama, question
from tests.advise.simulation.llama import TOGETHER
from tests.memory.configs import DEEPSEEK_V2_LITE


def test_a_small_load_needs_no_split() -> None:
    advice = answer(question(ttft="500ms", tpot="30ms"))
    assert advice.verdict.answer is Answer.TOGETHER
    assert advice.shown.candidate.layout.title == "unsplit: 1 x TP 1"
    assert any(one.candidate.layout.split for one in advice.results)


def test_a_tight_objective_for_tokens_beside_long_prompts_needs_a_split() -> None:
    advice = answer(question(prompt="8000", answer="150", rate=3, ttft="3s", tpot="8ms"))
    assert advice.verdict.answer is Answer.SPLIT
    assert advice.shown.candidate.layout.host_local


def test_tcp_that_cannot_carry_the_load_is_shown_with_its_limit() -> None:
    asked = question(prompt="8000", answer="150", rate=4)
    rows = {row["name"]: row for row in as_json(answer(asked))["arrangements"]}
    tcp = rows["split: 1 P TP 1 + 1 D TP 1, TCP"]
    assert (tcp["limit"], tcp["certainty"]) == ("transfer", "no")


def test_smaller_steps_are_a_hint_where_prompts_delay_tokens() -> None:
    asked = question(("1xH200",), prompt="8000", answer="150", rate=1.5, ttft="3s", tpot="30ms")
    advice = answer(asked)
    rows = {row["name"]: row for row in as_json(advice)["arrangements"]}
    own, small = rows["unsplit: 1 x TP 1"], rows["unsplit: 1 x TP 1, 2,048 tokens a step"]
    assert (own["decode"]["tokensPerStep"], own["hint"], own["best"]) == (8192, False, True)
    assert (small["decode"]["tokensPerStep"], small["hint"], small["best"]) == (2048, True, False)
    assert small["gap"]["p99"] == pytest.approx(0.056, rel=0.1)  # benchmarks/results/tuning.md: 56 ms in steps of 2,048
    assert own["gap"]["p99"] > 3 * small["gap"]["p99"]
    assert "maxNumBatchedTokens" not in advice.document()["spec"]["decode"]


@pytest.mark.parametrize(
    ("part", "options"),
    [("engine", {"maxNumBatchedTokens": 8192}), ("decode", {"maxNumBatchedTokens": 4096}),
     ("decode", {"enableChunkedPrefill": False, "maxNumBatchedTokens": 16384}), ("engine", {"maxNumSeqs": 4096})],
)  # fmt: skip
def test_tokens_a_step_that_the_file_decides_are_not_changed(part: str, options: dict[str, int]) -> None:
    document = llama()
    document["spec"].setdefault(part, {}).update(options)
    advice = answer(question(("1xH200",), prompt="8000", answer="150", rate=1.5, document=document))
    assert not any(one.candidate.layout.step_tokens for one in advice.results)


def test_smaller_steps_are_no_hint_where_prompts_are_as_short() -> None:
    advice = answer(question(("1xH200",), prompt="2000", answer="1000", rate=2, tpot="9ms"))
    (own,) = as_json(advice)["arrangements"]
    assert own["limit"] == "prompts between tokens"


def test_an_fp8_kv_cache_is_a_hint_where_reading_it_limits() -> None:
    advice = answer(question(("1xH200",), prompt="500", answer="1500", rate=3, tpot="9ms"))
    rows = {row["name"]: row for row in as_json(advice)["arrangements"]}
    own, small = rows["unsplit: 1 x TP 1"], rows["unsplit: 1 x TP 1, FP8 KV cache"]
    assert (own["limit"], own["kvCacheBits"], small["kvCacheBits"]) == ("decode bandwidth", 16, 8)
    assert small["decode"]["kvCacheTokens"] == pytest.approx(2 * own["decode"]["kvCacheTokens"], rel=0.01)
    assert small["tpot"]["p50"] < own["tpot"]["p50"]
    assert (small["tpot"]["source"], own["tpot"]["source"]) == ("extrapolated", "interpolated")
    assert advice.shown.candidate.layout.fp8 is False


def test_adaptive_is_a_hint_where_d_limits() -> None:
    advice = answer(question(("2xH200",), prompt="500", answer="1500", rate=8, transports=("nvlink",)))
    rows = {row["name"]: row for row in as_json(advice)["arrangements"]}
    own, adaptive = (rows[f"split: 1 P TP 1 + 1 D TP 1, NVLink{end}"] for end in ("", ", Adaptive"))
    assert own["limit"] in {"decode bandwidth", "API server"}
    assert (own["adaptive"], own["hint"]) == (False, False)
    assert (adaptive["adaptive"], adaptive["hint"], adaptive["best"]) == (True, True, False)
    assert [each["tokensPerStep"] for row in (own, adaptive) for each in (row["parameter"], row["decode"])] == [
        8192, 2048, 512, 512
    ]  # fmt: skip
    assert adaptive["whole"]["p50"] < 0.9 * own["whole"]["p50"]
    assert "disaggregation" not in advice.document()["spec"].get("router", {})


def test_adaptive_that_the_file_wants_is_in_every_split_row() -> None:
    document = llama()
    document["spec"]["router"] = {"disaggregation": "Adaptive"}
    asked = question(("2xH200",), prompt="500", answer="1500", rate=8, transports=("nvlink",), document=document)
    found = as_json(answer(asked))
    assert {row["adaptive"] for row in found["arrangements"]} == {True, False}
    assert all(row["adaptive"] == (row["mode"] == "Disaggregated") for row in found["arrangements"])
    assert not any("Adaptive" in row["name"] for row in found["arrangements"])


def test_a_file_in_which_each_request_goes_its_own_way_is_simulated_so() -> None:
    document = llama()
    document["spec"]["router"] = {"disaggregation": "Adaptive"}
    load: dict[str, Any] = {"prompt": "300", "answer": "700", "rate": 12, "transports": ("nvlink",)}
    adaptive, always = (
        {row["name"]: row for row in as_json(answer(asked))["arrangements"]}["split: 1 P TP 1 + 1 D TP 1, NVLink"]
        for asked in (question(("2xH200",), document=document, **load), question(("2xH200",), **load))
    )
    assert (adaptive["adaptive"], always["adaptive"]) == (True, False)
    assert adaptive["whole"]["p50"] < 0.97 * always["whole"]["p50"]
    assert [each["tokensPerStep"] for each in (adaptive["parameter"], adaptive["decode"])] == [512, 512]
    assert (adaptive["tpot"]["source"], always["tpot"]["source"]) == ("interpolated", "interpolated")


def test_objectives_and_router_pods_of_the_file_count_where_each_request_goes_its_own_way() -> None:
    """They change which way requests go, so the same load has other times."""
    load: dict[str, Any] = {"prompt": "6000", "answer": "300", "rate": 4, "transports": ("nvlink",)}
    found = []
    for router, objectives in (
        ({}, None),
        ({"replicas": 4}, None),
        ({}, {"ttft": "300ms"}),
    ):
        document = llama()
        document["spec"]["router"] = {"disaggregation": "Adaptive", **router}
        document["spec"] |= {} if objectives is None else {"objectives": objectives}
        rows = {
            row["name"]: row
            for row in as_json(answer(question(("2xH200",), document=document, **load)))["arrangements"]
        }
        found.append(rows["split: 1 P TP 1 + 1 D TP 1, NVLink"]["ttft"]["p99"])
    assert len(set(found)) == 3


def test_the_same_question_has_the_same_answer() -> None:
    asked = question(ttft="500ms", tpot="30ms")
    assert as_json(answer(asked)) == as_json(answer(asked))


def test_the_json_has_a_source_for_each_prediction_and_a_valid_resource() -> None:
    found = json.loads(json.dumps(as_json(answer(question(("2xH100",), prices=("H100=2.5",)))), allow_nan=False))
    assert set(found) == {"verdict", "why", "objectives", "load", "gpus", "arrangements", "notes", "resource"}
    for row in found["arrangements"]:
        for number in ("ttft", "tpot", "gap", "whole", "attainment", "bearsTimesTheLoad"):
            assert row[number]["source"] == "extrapolated"
        assert row["costPerHour"] == 2.5 * row["gpus"]
    assert examine(found["resource"], RenderSettings()).problems == ()


def test_instances_over_several_nodes_are_not_compared_and_it_says_so() -> None:
    document = llama()
    document["spec"]["engine"] = {"args": {}}
    split = {"parallelism": {"pipeline": 2, "nodes": 2}, "placement": {"domain": "rack", "nodeSelector": {"pool": "a"}}}
    document["spec"]["parameter"] |= split
    advice = answer(question(("4xH200",), prompt="8000", answer="150", rate=3, tpot="8ms", document=document))
    assert any("spec.parameter.parallelism of the file (data: 1, nodes: 2)" in note for note in advice.notes)
    assert advice.verdict.answer is Answer.SPLIT
    assert advice.document()["spec"]["parameter"]["placement"] == {"nodeSelector": {"pool": "a"}}
    assert examine(advice.document(), RenderSettings()).problems == ()


def test_the_replicas_range_from_the_mean_load_to_the_gpus() -> None:
    asked = question(("4xH200",), ttft="500ms", tpot="30ms")
    slow = replace(asked, load=replace(asked.load, seconds=10 * asked.load.seconds))
    role = answer(slow).document()["spec"]["decode"]
    assert role["autoscaling"] == {"minReplicas": 1, "maxReplicas": 4}


def test_a_model_that_fits_nowhere_is_refused_with_what_it_needs() -> None:
    document = llama()
    document["spec"]["model"]["architecture"]["config"] |= {
        "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "intermediate_size": 28672,
    }  # fmt: skip
    with pytest.raises(
        AdviceError, match=r"fits none of the GPUs: TP 1 on NVIDIA-H100-80GB-HBM3 needs 139 GiB of a GPU"
    ):
        answer(question(("1xH100",), document=document))


def test_a_model_whose_kv_cache_is_not_known_is_refused_with_the_reason() -> None:
    document = llama()
    document["spec"]["model"]["architecture"]["config"] = {
        **document["spec"]["model"]["architecture"]["config"], "model_type": "rwkv9",
    }  # fmt: skip
    with pytest.raises(AdviceError, match="is not known"):
        answer(question(document=document))


def test_rdma_of_the_resource_is_compared_once_its_speed_is_given() -> None:
    document = llama()
    document["spec"]["transfer"] = {"path": "Network", "rdma": {"resourceName": "rdma/ib"}}
    without = answer(question(document=document))
    assert [note for note in without.notes if "add for example --transport rdma=40GB/s" in note]
    given = answer(question(document=document, transports=("rdma=40GB/s",)))
    assert not [note for note in given.notes if "rdma" in note]


def test_a_connector_without_nvlink_is_compared_over_the_network_only() -> None:
    document = llama()
    document["spec"]["transfer"] = {"connector": "Mooncake", "path": "Network", "mooncake": {"protocol": "tcp"}}
    advice = answer(question(document=document))
    assert not any(one.candidate.layout.host_local for one in advice.results)
    assert "Mooncake does not use NVLink, so the path HostLocal is not compared." in advice.notes


def test_requests_that_the_model_does_not_take_are_left_out() -> None:
    asked = fitting(question(prompt="10000..20000"))
    assert 0 < len(asked.peak.arrivals) < len(question(prompt="10000..20000").peak.arrivals)
    assert "longer than 16,384 tokens" in asked.load.notes[-1]
    assert asked.load.notes[-1].endswith("Raise spec.model.maxModelLength to include more of them.")
    assert asked.load.rate == asked.peak.rate
    with pytest.raises(AdviceError, match="No request fits 16,384 tokens"):
        fitting(question(prompt="20000"))


def test_the_part_that_is_simulated_is_described_where_it_is_busier_than_the_load() -> None:
    steady = question()
    assert not answer(steady).of_load
    calm, busy = (steady.peak.faster(factor).part(0, 60) for factor in (1, 3))
    later = (replace(one, at=one.at + calm.seconds) for one in busy.arrivals)
    load = Trace((*calm.arrivals, *later), calm.seconds + busy.seconds, "a trace")
    (note,) = answer(replace(steady, load=load, peak=load)).of_load
    mean, part = load.rate, busy.rate
    assert note.startswith("The times are those of the busiest ")
    assert f"The means of the load are {mean:.3g} and" in note
    assert mean < float(note.split(" min: ")[1].split(" requests")[0]) <= 1.2 * part


def test_a_load_of_months_may_be_simulated_slower() -> None:
    asked = question(rate=1)
    load = replace(asked.peak, arrivals=asked.peak.arrivals[:20], seconds=300 * 86_400.0)
    trial = run_trial(Task(TOGETHER, load.seconds, 0.1, ERRORS[TimeSource.MEASURED]), load, asked.objectives)
    assert trial.tokens == pytest.approx(20 * 100 / load.seconds / 10)


@pytest.mark.parametrize("finalists", [1, 2])
def test_each_way_that_carries_the_load_is_shown(finalists: int) -> None:
    asked = question(transports=("nvlink", "tcp", "rdma=40GB/s"), ttft="500ms", tpot="30ms")
    effort = replace(QUICK, finalists=finalists)
    advice = advise(asked, lambda tasks: [run_trial(task, asked.peak, asked.objectives) for task in tasks], effort)
    ways = {one.candidate.layout.transport for one in advice.results}
    assert {way.name for way in ways if way is not None} == {"nvlink", "tcp", "rdma"}


def test_a_hint_whose_kv_cache_is_not_known_is_left_out() -> None:
    document = llama()
    sparse = {"model_type": "deepseek_v32", "index_head_dim": 128, "index_n_heads": 16, "index_topk": 2048}
    document["spec"]["model"]["architecture"] = {"config": DEEPSEEK_V2_LITE | {"q_lora_rank": 1536} | sparse}
    advice = answer(question(prompt="8000", answer="150", rate=4, document=document, transports=("0.05",)))
    assert any(limit_of(one) is FirstLimit.TRANSFER for one in advice.results)
    assert not any(one.candidate.layout.fp8 for one in advice.results)


@pytest.mark.parametrize("asked", [question(ttft="500ms", tpot="30ms"), question(prompt="8000", answer="150", rate=4)])
def test_the_simulations_that_are_still_to_come_are_known(asked: Question) -> None:
    done, totals = 0, list[int]()

    def simulate(tasks: Sequence[Task]) -> list[Trial]:
        nonlocal done
        done += len(tasks)
        assert done <= totals[-1]
        return [run_trial(task, asked.peak, asked.objectives) for task in tasks]

    advice = advise(asked, simulate, QUICK, lambda number: totals.append(done + number))
    assert totals[0] >= done - 3 * (1 + QUICK.rounds)  # hints come on top
    assert totals[-1] == done
    assert advice.results
