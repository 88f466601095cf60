"""llms.txt: the pages of the site with a sentence about each, for programs that read documentation (llmstxt.org)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_DOCS: Final = _REPOSITORY / "docs"
_GROUP: Final = re.compile(r"^```\{toctree\}\n(?::\w+:\n)*:caption: (.+)\n\n((?:.+\n)+)```$", re.MULTILINE)
_COMMENT: Final = re.compile(r"<!--.*?-->\n*", re.DOTALL)
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_SENTENCE: Final = re.compile(r".*?[.?](?=\s|$)", re.DOTALL)
_PROSE: Final = re.compile(r"[\w`*\"\[]")
SUMMARIES: Final = {
    "SECURITY.md": "How to report a vulnerability, and the threat model.",
    "CHANGELOG.md": "What changed for users, by version.",
    "CONTRIBUTING.md": "How to set up a checkout, run the tests and send a change.",
    "benchmarks/README.md": "Scripts that measure the operator, the autoscaling and the router, with their results.",
    "docs/quick-start.md": "The demo on one machine without a GPU, then your own model on your own cluster.",
    "docs/recipes.md": "Every example with what it needs and what it gave when it was measured.",
    "docs/p-d-or-not.md": "Measure the same model with and without the split on your own traffic.",
    "docs/resource.md": "Which field of a PDInference to set for which purpose, and its status.",
    "docs/clients.md": "Who may send requests: NetworkPolicies, API keys, TLS and load balancers.",
    "docs/memory.md": "Check whether a model fits its devices, and how many requests do, before a GPU is used.",
    "docs/autoscaling.md": "Replica counts of P and D that follow the load, with a ratio and a GPU budget for both.",
    "docs/gitops.md": "Install the operator and your models from Git with Argo CD or Flux, and wait for a roll-out.",
    "docs/gitops-state.md": "Health checks, fields to ignore, a pause, and what the removal of a file deletes.",
    "docs/gitops-fleet.md": "Canary clusters before production clusters, and new versions of vLLM and the chart.",
    "docs/doctor.md": "Whether nodes, images and network have what a fast KV transfer needs, and how fast it is.",
    "docs/calibrate.md": "Measure your device, so that predictions use its numbers.",
    "docs/tuning.md": "Which field to set for shorter gaps, earlier first tokens, faster KV transfers or long answers.",
    "docs/older-models.md": "How to serve a model whose class vLLM has removed.",
    "docs/operations.md": "What to look at, what an edit does, what the operator would do next, and how pods stop.",
    "docs/undo.md": "Go back to an earlier spec, and pause a resource so that edits wait.",
    "docs/upgrade.md": "The steps, and which versions need GPUs or a list of clients.",
    "docs/models.md": "Downloads, damaged files and LoRA adapters: what each message means and what to do.",
    "docs/nodes.md": "Folders of nodes, RDMA, disk tiers and shared volumes.",
    "docs/limits.md": "What this version does not do, or does only under a condition.",
    "docs/accounts.md": "Which pods have a token, and what a stolen token of the operator could do.",
    "docs/troubleshooting.md": "From a symptom to its cause and remedy.",
    "docs/runbooks.md": "What to do for each reason of KVTransfer, for missed objectives, and without an operator.",
    "docs/webhook.md": "When the webhook answers, where its certificate comes from, and who may call it.",
    "docs/security.md": "What the chart sets up, which values widen or narrow access, and what remains for you to do.",
    "docs/releases.md": "Which releases of Kubernetes and vLLM work, what a version promises, how to install it.",
    "docs/contributing.md": "Recipes to add a field, a child object, a load signal, a condition or a page.",
    "docs/adr/README.md": "The decisions behind the design, with alternatives and evidence.",
    "docs/reference/conditions.md": "Every condition and every reason, with its meaning and remedy.",
    "docs/reference/events.md": "Every Event, with its meaning.",
    "docs/reference/metrics.md": "Every metric of the operator, the router and the runner of a PDBatch.",
    "docs/reference/commands.md": "Every command of pdinference with its options.",
}
"""Summaries of pages whose first sentence is none."""


def llms_text() -> str:
    """The whole file."""
    front = (_DOCS / "index.md").read_text(encoding="utf-8")
    parts = [f"# pdinference\n\n> {_first_sentence(front)}"]
    for caption, entries in _GROUP.findall(front):
        pages = (page for entry in entries.split() for page in sorted(_DOCS.glob(f"{entry}.md")))
        parts.append("\n".join([f"## {caption}\n", *(_line(page.resolve()) for page in pages)]))
    return "\n\n".join(parts) + "\n"


def _line(page: Path) -> str:
    path = str(page.relative_to(_REPOSITORY))
    text = page.read_text(encoding="utf-8")
    title = _plain(text.partition("\n")[0].removeprefix("# "))
    sentence = "" if re.match(r"docs/adr/\d", path) else _first_sentence(text)  # the title of a decision says it
    summary = SUMMARIES.get(path, sentence)
    return f"- [{title}](_sources/{path}){summary and f': {summary}'}"


def _first_sentence(text: str) -> str:
    """The first sentence of the first paragraph."""
    paragraph = next(_paragraphs(text), "")
    found = _SENTENCE.match(paragraph)
    return _plain(found[0] if found else paragraph).removesuffix(":")


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of prose, without headings, code, tables and lists."""
    for block in _COMMENT.sub("", text).split("\n\n"):
        if _PROSE.match(block) and not block.startswith("```"):
            yield " ".join(block.split())


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text).replace("`", "").replace("**", "")
