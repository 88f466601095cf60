"""`pdinference chat`: through a port-forward over HTTP, to a router that streams."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from pdinference.cli.requests.chat import turns
from pdinference.cli.requests.stages import in_log
from pdinference.cli.requests.stream import printable
from pdinference.cli.requests.wrapping import WordWrap
from tests.cli.conftest import Served
from tests.cli.fake_router import STAGES
from tests.cli.served_cluster import resource


async def test_the_answer_is_followed_by_its_times(served: Served) -> None:
    found = await served.cluster.run("chat", "What is a KV cache?")
    assert found.exit_code == 0, found.output
    text, _, times = found.stdout.partition("\n\n")
    assert text == "KV cache [31mkeeps keys."
    first, *stages = times.splitlines()
    assert first.startswith("12 prompt tokens, 4 answer tokens: first token after ")
    assert [line.split()[:3] for line in stages] == [
        ["queue", "0.1", "ms"],
        ["prefill", "31.0", "ms"],
        ["first_token", "42.0", "ms"],
        ["tokens", "1.20", "s"],
    ]
    assert stages[1].endswith("P computed the prompt (llama-parameter-r1-0)")
    (body,) = served.router.bodies
    assert body["messages"] == [{"role": "user", "content": "What is a KV cache?"}]
    assert body["model"] == "llama"


async def test_why_a_request_went_its_way(served: Served) -> None:
    served.router.why = {
        "way": "decode",
        "reason": "cost",
        "prompt_tokens": 4020,
        "expected_cached_tokens": 3900,
        "cached_tokens": 3840,
        "predicted_first_token_seconds": {"decode": 0.031, "split": 0.12},
        "predicted_token_seconds": {"decode": 0.0075, "split": 0.007},
        "costs": {"split": 2.5, "decode": 1.75},
    }
    found = await served.cluster.run("chat", "Why?", "--why")
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines()[-4:] == [
        "  way: D alone, which costs least",
        "    D alone      1.75 s: first token after 31.0 ms, others every 7.5 ms",
        "    P and D      2.50 s: first token after 120.0 ms, others every 7.0 ms",
        "    Of about 4,020 prompt tokens 3,900 were expected in the pod's cache, 3,840 were.",
    ]
    assert "way:" not in (await served.cluster.run("chat", "Why?")).stdout
    found = await served.cluster.run("chat", "Why?", "-o", "json")
    assert json.loads(found.stdout)["stages"]["why"]["costs"] == {"split": 2.5, "decode": 1.75}


@pytest.mark.parametrize(
    ("why", "text"),
    [
        ({}, "this request had no other one"),
        ({"way": 5}, "this request had no other one"),
        ({"reason": "learning"}, "P and D, because the router has seen too few requests yet"),
        ({"reason": "objectives"}, "P and D, which keeps more of spec.objectives than cheaper ones"),
    ],
)
async def test_a_way_that_was_no_choice_says_so(served: Served, why: dict[str, object], text: str) -> None:
    rest: dict[str, object] = {"way": "split", "reason": "cost", "prompt_tokens": 9, "expected_cached_tokens": 0}
    rest |= {"cached_tokens": None, "predicted_first_token_seconds": {}, "predicted_token_seconds": {}, "costs": {}}
    served.router.why = rest | why if why else {}
    assert text in (await served.cluster.run("chat", "Why?", "--why")).stdout


async def test_on_a_terminal_lines_end_between_words(served: Served) -> None:
    served.router.words = ["The router hands the request to P, and then to D, which", " generates", " the tok", "ens."]
    answer, _, times = (await served.cluster.run_on_terminal(60, "chat", "Hi")).partition("\n\n")
    assert answer == "The router hands the request to P, and then to D, which\ngenerates the tokens."
    assert times.splitlines()[-4:] == [
        "  first_token   42.0 ms  D fetched the KV cache and computed",
        "                         the first token (llama-decode-r1-x)",
        "  tokens         1.20 s  D generated the rest",
        "                         (llama-decode-r1-x)",
    ]
    found = await served.cluster.run_on_terminal(60, "chat", "Hi", "--model", "gpt-of-a-name-with-hyphens")
    assert found == ("Error: The router serves no model\ngpt-of-a-name-with-hyphens. It serves: llama, llama-sql.\n")


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        (["one tw", "o three fo", "ur"], ["one two", "three four"]),
        (["a  b\n\n  c", " d"], ["a  b", "", "  c d"]),
        (["unbreakable-word a"], ["unbreakable-word", "a"]),
        (["a unbreakable-word"], ["a", "unbreakable-word"]),
        (["ab 漢字", "漢字漢字"], ["ab 漢字漢", "字漢字"]),
        (["```\nx = 1  #", " comment\n```\none two three"], ["```", "x = 1  # comment", "```", "one two", "three"]),
    ],
)
def test_streamed_text_is_wrapped_at_words_outside_of_code(parts: list[str], lines: list[str]) -> None:
    wrap = WordWrap(10)
    assert "".join([*map(wrap.add, parts), wrap.end()]).split("\n") == lines


def test_streamed_text_for_a_file_passes_as_it_comes() -> None:
    wrap = WordWrap(None)
    assert [*map(wrap.add, ("one tw", "o")), wrap.end()] == ["one tw", "o", ""]


async def test_options_reach_the_router(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDINFERENCE_API_KEY", "secret-of-16-chars")
    options = ("--system", "Be short.", "--max-tokens", "9", "--model", "llama-sql")
    found = await served.cluster.run("chat", "llama", "Hi", *options)
    assert found.exit_code == 0, found.output
    (body,) = served.router.bodies
    assert body["messages"][0] == {"role": "system", "content": "Be short."}
    assert (body["max_tokens"], body["model"]) == (9, "llama-sql")
    assert served.router.keys == ["Bearer secret-of-16-chars"]


async def test_json_has_the_answer_and_the_stages(served: Served) -> None:
    found = json.loads((await served.cluster.run("chat", "Hi", "-o", "json")).stdout)
    assert (found["model"], found["routerPod"], found["answer"]["prefill"]) == ("llama", "router-0", "parameter")
    assert found["stages"]["seconds"] == STAGES
    assert 0 < found["answer"]["first"] <= found["answer"]["total"]


async def test_lines_of_standard_input_are_turns_of_one_conversation(
    served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from click.testing import CliRunner  # noqa: PLC0415

    invoke = CliRunner.invoke
    monkeypatch.setattr(
        CliRunner, "invoke", lambda self, command, line: invoke(self, command, line, input="one\n\ntwo\n")
    )
    found = await served.cluster.run("chat", "llama", "-")
    assert found.exit_code == 0, found.output
    roles = [[message["role"] for message in body["messages"]] for body in served.router.bodies]
    assert roles == [["user"], ["user", "assistant", "user"]]


async def test_on_a_terminal_each_turn_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keyboard, terminal = os.openpty()
    with os.fdopen(terminal, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        found = turns("-")
        waiting = asyncio.ensure_future(anext(found))
        await asyncio.sleep(0)
        assert not waiting.done()
        os.write(keyboard, b"\none\n")
        assert await waiting == "one"
        os.write(keyboard, b"\x04")  # Ctrl-D
        assert [turn async for turn in found] == []
    os.close(keyboard)
    assert capsys.readouterr().out == "> > > \n"


async def test_stages_that_cannot_be_read_are_unknown_with_the_reason(served: Served) -> None:
    served.router.logs = False
    found = await served.cluster.run("chat", "Hi")
    assert found.exit_code == 0
    assert "The stages are not known. The log of router-0 has no line for the request" in found.output
    del served.cluster.logs["router-0", "router"]
    found = await served.cluster.run("chat", "Hi", "-o", "json")
    assert 'container "router" is waiting' in json.loads(found.stdout)["stagesUnknown"]


@pytest.mark.parametrize(
    ("status", "advice"),
    [(401, "Pass one with --api-key"), (503, "`kubectl pdi status` says what is not ready"), (400, "no such thing")],
)
async def test_a_refusal_of_the_router_says_what_to_do(served: Served, status: int, advice: str) -> None:
    served.router.refusal = (status, "no such thing")
    found = await served.cluster.run("chat", "Hi")
    assert found.exit_code == 1
    assert f"Error: The router answers {status}: no such thing" in found.output
    assert advice in found.output


async def test_an_answer_that_breaks_off_is_an_error(served: Served) -> None:
    served.router.ends = False
    found = await served.cluster.run("chat", "Hi")
    assert found.exit_code == 1
    assert found.stderr == "Error: The answer broke off.\n"


@pytest.mark.parametrize(
    "event",
    [
        b"no JSON",
        b"[]",
        b"\xff",
        b"[" * 5000,
        b'{"choices": 3}',
        b'{"choices": {"a": 1}}',
        b'{"choices": [3]}',
        b'{"choices": [{"delta": []}]}',
        b'{"choices": [], "usage": {"prompt_tokens": "many"}}',
        b'{"choices": [], "usage": 3}',
    ],
)
async def test_an_event_of_another_form_is_an_error(served: Served, event: bytes) -> None:
    served.router.events = [event]
    found = await served.cluster.run("chat", "Hi")
    assert found.exit_code == 1
    assert found.stderr == "Error: The answer has an event that is not as vLLM writes it.\n"


@pytest.mark.parametrize("models", [b"{", b"[]", b'{"data": [3]}', b'{"data": 3}', b'{"data": [{}]}'])
async def test_a_list_of_models_of_another_form_is_an_error(served: Served, models: bytes) -> None:
    served.router.models = models
    found = await served.cluster.run("chat", "Hi")
    assert found.exit_code == 1
    assert found.stderr == "Error: The router's list of models is not as vLLM writes it.\n"


async def test_what_keeps_from_reaching_the_router_is_named(served: Served) -> None:
    served.cluster.forward_refusal = 403
    found = await served.cluster.run("chat", "Hi")
    assert "You need the right to `get` and `create` the resource pods/portforward." in found.output
    served.cluster.forward_refusal = 0
    served.cluster.pod_port = 1
    found = await served.cluster.run("chat", "Hi")
    assert (found.exit_code, found.output) == (1, "Error: connection refused by the pod\n")
    served.cluster.pods.clear()
    found = await served.cluster.run("chat", "Hi")
    assert found.output == "Error: llama has no ready router pod. `kubectl pdi status llama` says why.\n"


async def test_a_model_that_is_not_served_is_refused_with_those_that_are(served: Served) -> None:
    found = await served.cluster.run("chat", "Hi", "--model", "gpt")
    assert found.output == "Error: The router serves no model gpt. It serves: llama, llama-sql.\n"
    assert served.router.bodies == []


async def test_two_resources_need_a_name(served: Served) -> None:
    served.cluster.resources.append(resource("qwen"))
    assert "Write the NAME of one." in (await served.cluster.run("chat", "Hi")).output


def test_answers_hold_no_control_characters() -> None:
    assert printable("a\x1b[31m\x07b\n\tc\u202ed") == "a[31mb\n\tcd"


@pytest.mark.parametrize("log", [b"", b"id\n", b'{"request_id": "other", "x": "id"}\n', b'["id"]\n'])
def test_a_log_without_the_request_has_no_stages(log: bytes) -> None:
    assert in_log(log, "id") is None
