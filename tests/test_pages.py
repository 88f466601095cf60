"""What the test of pages (e2e/test_pages.py) runs and compares, and what it leaves out."""

import os
from pathlib import Path

import pytest

from e2e.pages import DOCUMENTS, PAGES, PageError, is_as_shown, page
from e2e.waiting import wait_until

ENVIRONMENT = {"PATH": "", "LANG": "C.UTF-8", "HOME": os.devnull}


def run(folder: Path, text: str, timeout: float = 60) -> None:
    """Run a page in a folder of its own."""
    file = folder / "page.md"
    file.write_text(text, encoding="utf-8")
    clone = folder / "clone"
    clone.mkdir()
    page(file).run(clone, ENVIRONMENT, timeout)


def indented(*lines: str) -> str:
    return "".join(f"    {line}\n" for line in lines)


def test_blocks_share_a_shell_and_a_folder_with_the_examples(tmp_path: Path) -> None:
    once = indented("NAME=tiny", "greet() { echo hello $1; }", "grep name: examples/tiny-cpu.yaml > found")
    later = "1. In a list:\n\n       greet $NAME\n       cat found\n\n```\nhello tiny\n  name: tiny\n```\n"
    run(tmp_path, f"Set once:\n\n{once}\n{later}")


def test_a_command_that_fails_fails_the_page_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(PageError, match=r"page\.md, line 5, exit status 3\n(?s:.*)Exit status 3: return 3"):
        run(tmp_path, indented("echo one") + "\ntext\n\n" + indented("exits() { return 3; }", "exits", "echo two"))


@pytest.mark.parametrize("command", ["no-such-program", "false | cat", "value=$(false)", "cat /dev/null/x"])
def test_every_part_of_a_command_has_to_succeed(tmp_path: Path, command: str) -> None:
    with pytest.raises(PageError, match="line 1, exit status"):
        run(tmp_path, indented(command, "echo after"))


def test_a_program_that_a_fresh_machine_lacks_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(PageError, match="perl: command not found"):
        run(tmp_path, indented("perl -e 1"))


def test_other_output_fails_the_page(tmp_path: Path) -> None:
    session = indented("$ echo 5 pods", "7 pods", "$ echo 1 pod", "2 nodes")
    with pytest.raises(
        PageError, match=r"line 3, other output than this one:\n2 nodes\n\necho 1 pod\n\nPrinted:\n1 pod"
    ):
        run(tmp_path, session)


def test_json_has_the_members_that_are_shown(tmp_path: Path) -> None:
    printed = indented("""echo '{"id": "x-1f", "more": [null], "choices": [{"index": 0, "n": 12}]}'""")
    run(tmp_path, f'{printed}\n```json\n{{"id": "x-...", "choices": [{{"n": 4, "index": 0}}]}}\n```\n')


def test_json_without_a_member_fails(tmp_path: Path) -> None:
    with pytest.raises(PageError, match="line 1"):
        run(tmp_path, indented("""echo '{"n": 12}'""") + '\n```json\n{"n": 12, "usage": 1}\n```\n')


def test_a_command_until_ctrl_c_is_interrupted_when_it_has_printed(tmp_path: Path) -> None:
    watch = "watch() { echo seen $1; sleep 1000; }"
    run(tmp_path, indented(watch, "watch this   # live, until Ctrl-C", "echo then") + "\n```\nseen this\nthen\n```\n")


def test_a_command_that_is_refused_has_to_fail(tmp_path: Path) -> None:
    refuse = "refuse() { echo no $1; return 1; }"
    run(tmp_path, indented(refuse, "refuse this   # is refused", "echo then") + "\n```\nno this\nthen\n```\n")


def test_a_command_that_should_be_refused_and_is_not_fails_the_page(tmp_path: Path) -> None:
    with pytest.raises(PageError, match=r"line 1, exit status 1\n(?s:.*)yes\nThis was not refused\."):
        run(tmp_path, indented("echo yes   # is refused", "echo then"))


def test_processes_in_the_background_end_with_the_page(tmp_path: Path) -> None:
    run(tmp_path, indented("sleep 1000 &", "echo $! > pid"))
    process = Path("/proc", (tmp_path / "clone" / "pid").read_text().strip(), "stat")
    wait_until("the process to end", lambda: not process.exists() or process.read_text().split()[2] == "Z", timeout=60)


def test_a_page_that_takes_too_long_fails_at_the_command(tmp_path: Path) -> None:
    with pytest.raises(PageError, match=r"line \d, not done after 1 s"):
        run(tmp_path, indented("true") + "\nThen:\n\n" + indented("sleep 1000"), timeout=1)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a\n...\nb", "a\n1\n2\nb"),
        ("a\n...\nb", "a\nb"),
        ("id: ... end", "id: 5f-x end"),
        ("16 answers in 15.3 s: 1,024 tokens", "4 answers in 120 s: 64 tokens"),
        ("1.96608e+08 bytes at 05:41:04", "3.1e+07 bytes at 11:02:33"),
        ("tiny-decode-85795cffdb-fwszl   ready", "tiny-decode-5d4bbf6c9-2xk4z ready"),
        ("P   0.0 %", "P   0.0 %"),
        ("failed 0", "failed 0.0"),
    ],
)
def test_what_varies_may_differ(shown: str, printed: str) -> None:
    assert is_as_shown(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a\nb", "a\n1\nb"),
        ("a", "a\nb"),
        ("a", ""),
        ("failed 0", "failed 2"),
        ("moved 18.8 %", "moved 0.0 %"),
        ("tiny-decode-85795cffdb-fwszl", "tiny-router-85795cffdb-fwszl"),
        ("p50 of 3", "p90 of 3"),
        ("3 pods", "three pods"),
    ],
)
def test_everything_else_may_not(shown: str, printed: str) -> None:
    assert not is_as_shown(shown, printed)


def test_an_output_needs_commands_or_a_mark(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text("<!-- not run: it needs a GPU -->\n\n    run\n\n```\nthis\n```\n", encoding="utf-8")
    with pytest.raises(PageError, match="no commands are before the output 'this'"):
        page(file)


def test_these_blocks_of_the_pages_are_not_run() -> None:
    """Each has a reason. A block that works on the local cluster is run."""
    blocks = {name: page(DOCUMENTS / f"{name}.md").skipped for name in PAGES}
    found = {name: [(" ".join(one.first_line.split()[:3]), one.reason) for one in blocks[name]] for name in PAGES}
    assert found == LEFT_OUT


LEFT_OUT = {
    "quick-start": [
        ("make demo", "the cluster of the tests is made in the same way"),
        ("make setup", "the tests have this environment already"),
        ("docker build -f", "needs docker and a registry"),
        ("helm upgrade --install", "needs a registry"),
        ("kubectl create secret", "needs GPUs and a token of Hugging Face"),
        ("kubectl port-forward service/llama", "needs GPUs"),
    ],
    "kubectl-pdi": [
        ("uvx --from ./pdinference-*.whl", "tests/test_wheel.py installs the wheels"),
        ("make setup", "the tests have this environment already"),
        ("team-a/llama ready http://llama.team-a.svc", "another resource"),
    ],
    "measure": [
        ("kubectl pdi bench", "longer than the prompts of the tiny model, and takes 100 seconds"),
        ("kubectl pdi dashboard", "needs Grafana"),
    ],
    "verify": [
        ("...", "how much a look sees depends on the speed of the machine"),
        ("kubectl patch --local", "another model, and a load of a minute; e2e/test_tiers.py tests the tiers"),
        ("05:33:50 P 0.0", "what was printed then"),
        ("$ counters 8001", "counters of the tiers"),
    ],
    "admission": [],
    "troubleshooting": [
        ("kubectl patch pdi", "vLLM starts three times, which takes a minute"),
        ("├── revision skdpbsbd", "what was printed then"),
    ],
    "operations": [],
    "undo": [],
    "models": [
        ("$ kubectl get", "the demo downloads no model; e2e/test_model_cache.py tests downloads"),
        ("$ kubectl create", "the demo has no bucket; e2e/test_bucket.py tests one"),
        ("$ kubectl get", "the model of the demo is in its image"),
        ("for pod in", "the demo has no adapter"),
    ],
    "autoscaling": [],
    "batch": [
        ("jq -rs 'sort_by(.custom_id)[]", "jq is not part of Debian"),
        ("kubectl patch secret", "the demo has no keys; e2e/test_batch.py tests them"),
    ],
    "gitops": [
        ("kubectl patch configmap", "needs Argo CD"),
        ("flux bootstrap git", "needs Flux"),
    ],
    "gitops-fleet": [("kubectl patch configmap", "needs Argo CD")],
    "p-d-or-not": [("vllm bench serve", "needs GPUs")],
}
