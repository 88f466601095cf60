"""`make conformance`: which verdict follows from what was seen, and the page that is handed in."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from e2e.conformance import autoscaling, checks, gang, waiting_pods
from e2e.conformance.bench import Bench, devices
from e2e.conformance.checklist import REQUIREMENTS
from e2e.conformance.checks import CHECKS, OF_THE_PLATFORM, examine
from e2e.conformance.evidence import Evidence, Gap, Observation, Verdict, complete
from e2e.conformance.notes import Notes
from e2e.conformance.page import page, summary
from e2e.install import ImageReferences, example
from e2e.kubectl import Kubectl, KubectlError
from e2e.waiting import WaitTimeoutError
from pdinference.api.installation_policy import Policy
from pdinference.checks.examine import examine as examined
from pdinference.manifests.settings import RenderSettings

ONE, *OTHERS = REQUIREMENTS
GOOD = Observation("pods run", True, "2 of 2")
BAD = Observation("pods run", False, "1 of 2")
CPU = Gap(Verdict.NEEDS_ACCELERATOR, "The pods run on CPU.")


@pytest.mark.parametrize(
    ("observations", "gap", "verdict", "why"),
    [
        ([GOOD, GOOD], None, Verdict.MET, ""),
        ([GOOD, BAD], None, Verdict.NOT_MET, "pods run: 1 of 2"),
        ([GOOD], CPU, Verdict.NEEDS_ACCELERATOR, CPU.why),
        ([BAD], CPU, Verdict.NOT_MET, "pods run: 1 of 2"),
        ([], CPU, Verdict.NEEDS_ACCELERATOR, CPU.why),
        ([], None, Verdict.NOT_SHOWN, ""),
    ],
)
def test_a_requirement_is_met_only_if_all_is_as_it_should_be_and_nothing_is_missing(
    observations: list[Observation], gap: Gap | None, verdict: Verdict, why: str
) -> None:
    evidence = Evidence(ONE, tuple(observations), gap)
    assert (evidence.verdict, evidence.why) == (verdict, why)


def test_each_requirement_has_a_check_or_a_reason_why_the_operator_shows_nothing_of_it() -> None:
    assert Counter(one.id for one in REQUIREMENTS) == Counter([*CHECKS, *OF_THE_PLATFORM])
    assert not {gap.verdict for gap in OF_THE_PLATFORM.values()} & {Verdict.MET, Verdict.NOT_MET}


def test_a_run_that_ends_early_says_which_requirements_it_did_not_reach() -> None:
    found = complete(REQUIREMENTS, [Evidence(OTHERS[0], (GOOD,))])
    assert [one.requirement for one in found] == list(REQUIREMENTS)
    assert summary(found) == f"1 met, {len(REQUIREMENTS) - 1} not shown here"
    assert found[0].why == "The run ended before this check."


@pytest.mark.parametrize("error", [KubectlError("refused"), WaitTimeoutError("Waited 60 s")])
def test_a_check_that_fails_is_no_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fails(_: Bench, notes: Notes) -> None:
        notes.did("kubectl get pods")
        notes.saw(GOOD.what, GOOD.holds, GOOD.seen)
        raise error

    monkeypatch.setattr(checks, "CHECKS", {ONE.id: fails})
    evidence = examine(ONE, bench(), tmp_path)
    assert evidence.verdict is Verdict.NOT_MET
    assert str(error) in evidence.why
    assert evidence.observations[0] == GOOD
    assert evidence.commands == ("kubectl get pods",)


def test_the_page_has_each_requirement_with_its_verdict_evidence_and_how_to_show_it_elsewhere() -> None:
    shown = Evidence(ONE, (GOOD,), None, ("kubectl get pods",), (f"{ONE.id}/pods.yaml",))
    text = page(complete(REQUIREMENTS, [shown, Evidence(OTHERS[0], (BAD,))]), "Kubernetes v1.", "today")
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == [one.id for one in REQUIREMENTS]
    assert "Verdict: **met**\n" in sections[ONE.id]
    assert "    kubectl get pods\n" in sections[ONE.id]
    assert f"]({ONE.id}/pods.yaml)" in sections[ONE.id]
    assert "Verdict: **not met**: pods run: 1 of 2" in sections[OTHERS[0].id]
    assert [one.id for one in REQUIREMENTS if one.elsewhere in sections[one.id]] == [one.id for one in OTHERS]


def test_words_of_the_cluster_cannot_change_the_page() -> None:
    """A message may come from a pod, an image or a webhook of a stranger."""
    words = "a | b\n\n# met\n<script>x</script> ![x](https://example.com/x.png) `**met**`"
    found = [Evidence(ONE, (Observation(words, False, words),), None, (words,))]
    parsed = MarkdownIt("commonmark").enable("table").parse(page(found, "Kubernetes v1.", "today"))
    inline = [child for token in parsed for child in token.children or ()]
    assert [token.content for token in parsed if token.type == "html_block"] == []
    assert not {"html_inline", "image"} & {child.type for child in inline}
    assert sum(token.type == "heading_open" for token in parsed) == 2
    rows = sum(token.type == "tr_open" for token in parsed)
    assert rows == 4, "two heads, the row of the requirement, and that of the observation"
    assert sum(token.type == "td_open" for token in parsed) == 4 + 3


def bench() -> Bench:
    images = ImageReferences("localhost/pdinference/operator:1", "localhost/pdinference/vllm-cpu:0.32.0")
    return Bench(Kubectl(None, "conformance"), example(images), images.operator)


def resources() -> list[dict[str, Any]]:
    """What the checks apply."""
    return [
        bench().document,
        autoscaling.scaled(bench(), "1m"),
        gang.gang(bench()),
        waiting_pods.document("claims", {"devices": {"deviceClassName": waiting_pods.DEVICE_CLASS}}),
        waiting_pods.document("pending", {"resourceName": waiting_pods.RESOURCE}),
    ]


@pytest.mark.parametrize("resource", resources(), ids=lambda resource: resource["metadata"]["name"])
def test_the_resources_of_the_checks_are_valid(resource: dict[str, Any]) -> None:
    policy = Policy(labels=[gang.GROUP_LABEL], annotations=[gang.COUNT_ANNOTATION])
    assert examined(resource, RenderSettings(policy=policy)).problems == ()


def test_devices_of_a_pod_are_its_extended_resources_and_its_claims() -> None:
    limits = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2"}
    spec = {"containers": [{"resources": {"limits": limits}}, {}], "resourceClaims": [{"name": "accelerators"}]}
    assert devices({"spec": spec}) == ["nvidia.com/gpu: 2", "claim accelerators"]
    assert devices({"spec": {"containers": [{"resources": {"limits": {"memory": "1Gi"}}}]}}) == []
