"""Options in `args` compared with the list of vLLM's options."""

from collections.abc import Callable
from typing import Any

import pytest

from pdinference.api.names import ENGINE_ROLES
from pdinference.api.v1alpha1 import PDInference
from pdinference.api.v1alpha1.engine import OWNED_ARGUMENTS
from pdinference.checks import examine
from pdinference.checks.options import lists, option_problems, option_warnings
from pdinference.checks.pair import pair_problems
from pdinference.engine.refused import REFUSED_ARGUMENTS
from pdinference.engine.vllm import engine_command
from pdinference.manifests import RenderSettings, render
from tests.checks.vllm_options import option_list
from tests.conftest import EXAMPLES, REPOSITORY, example_documents

Make = Callable[..., PDInference]


def refused(resource: PDInference) -> dict[str, str]:
    return {problem.field: problem.message for problem in option_problems(resource.spec)}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max-logprob", 5, "Did you mean max-logprobs?"),
        ("xyzzy", 5, "vLLM's documentation lists all options."),
        ("max-logprobs", "many", "a whole number"),
        ("max-logprobs", True, "a whole number"),
        ("max-logprobs", 1.5, "a whole number."),
        ("max-logprobs", "9" * 60, "a whole number between -9223372036854775808 and 9223372036854775807."),
        ("max-logprobs", str(2**63), "and 9223372036854775807."),
        ("max-logprobs", str(-(2**63) - 1), "between -9223372036854775808 and"),
        ("kv-cache-memory-bytes", "9" * 60, "4K (4,096) between -9223372036854775808 and 9223372036854775807."),
        ("kv-cache-memory-bytes", "9" * 60 + "k", "and 9223372036854775807."),
        ("kv-cache-memory-bytes", "4x", "4K (4,096)."),
        ("dp-supervisor-probe-interval-s", "9" * 60, "a number between"),
        ("enable-sleep-mode", "yes", "true or false"),
        ("no-enable-sleep-mode", False, "true, or else no such option"),
        ("tokenizer-mode", [1], "one value"),
        ("load-format", True, "one value"),
        ("cudagraph-capture-sizes", [], "one or several values"),
        ("chat-template-content-format", "xml", "one of auto, openai, string"),
    ],
)
def test_what_vllm_would_not_take_is_refused(resource: Make, name: str, value: Any, words: str) -> None:
    assert words in refused(resource(decode={"args": {name: value}}))[f"spec.decode.args.{name}"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max-logprobs", 5),
        ("max-logprobs", "5"),
        ("max-logprobs", str(2**63 - 1)),
        ("max-logprobs", str(-(2**63))),
        ("kv-cache-memory-bytes", "25G"),
        ("dp-supervisor-probe-interval-s", "1e-3"),
        ("enable-sleep-mode", True),
        ("enable-sleep-mode", False),
        ("no-enable-sleep-mode", True),
        ("load-format", "dummy"),
        ("hf-overrides", {"a": 1}),
        ("cudagraph-capture-sizes", [1, 2]),
        ("chat-template-content-format", "openai"),
    ],
)
def test_what_vllm_takes_is_accepted(resource: Make, name: str, value: Any) -> None:
    assert refused(resource(engine={"args": {name: value}})) == {}


@pytest.mark.parametrize(
    ("image", "known"),
    [
        ("docker.io/vllm/vllm-openai:v0.32.0", True),
        (f"docker.io/vllm/vllm-openai:v0.32.0@sha256:{'0' * 64}", True),
        (f"docker.io/vllm/vllm-openai:v0.33.0@sha256:{'0' * 64}", True),
        (f"docker.io/vllm/vllm-openai:v0.34.0@sha256:{'0' * 64}", False),
        (f"docker.io/vllm/vllm-openai@sha256:{'0' * 64}", False),
        ("localhost/pdinference/vllm-cpu:0.32.0", True),
        ("team/vllm:v0.32.0-cu130", True),
        ("docker.io/vllm/vllm-openai:v0.33.0", True),
        ("docker.io/vllm/vllm-openai:v0.34.0", False),
        ("docker.io/vllm/vllm-openai:v0.32.01", False),
        ("docker.io/vllm/vllm-openai:latest", False),
    ],
)
def test_another_version_may_have_other_options(resource: Make, image: str, known: bool) -> None:
    spec = resource(engine={"image": image, "args": {"brand-new": 1}}).spec
    assert (len(list(option_problems(spec))), len(list(option_warnings(spec)))) == ((1, 0) if known else (0, 1))


@pytest.mark.vllm
def test_the_list_is_that_of_the_real_parser() -> None:
    from vllm import __version__ as version  # noqa: PLC0415

    from tests.engine.vllm_parser import parser  # noqa: PLC0415

    file = REPOSITORY / f"operator/pdinference/checks/vllm-options/{version}.txt"
    assert file.read_text() == option_list(version, parser()), "run `make vllm-options`"


@pytest.mark.parametrize("name", REFUSED_ARGUMENTS)
@pytest.mark.parametrize("part", ["engine", "parameter", "decode"])
def test_options_that_open_or_show_something_are_refused(resource: Make, part: str, name: str) -> None:
    for image in ("docker.io/vllm/vllm-openai:v0.32.0", "team/vllm:custom"):
        options = {"args": {name: "x"}}
        both = (
            {"engine": {"image": image}} | {part: options} if part != "engine" else {part: {**options, "image": image}}
        )
        found = refused(resource(**both))
        assert list(found) == [f"spec.{part}.args.{name}"]
        assert REFUSED_ARGUMENTS[name] in found[f"spec.{part}.args.{name}"]


@pytest.mark.parametrize("name", ["api-ke", "ssl-key", "no-enable-ssl-refresh", "ssl", "ud", "data-parallel-addr"])
def test_what_argparse_could_take_for_one_is_refused_too(resource: Make, name: str) -> None:
    assert f"spec.engine.args.{name}" in refused(resource(engine={"image": "team/vllm:1", "args": {name: True}}))


_EVERY = sorted(OWNED_ARGUMENTS | REFUSED_ARGUMENTS)


@pytest.mark.parametrize("option", _EVERY)
def test_no_abbreviation_of_an_option_of_the_operator_reaches_an_unknown_vllm(resource: Make, option: str) -> None:
    """argparse takes the beginning of an option for the option, in each of its forms and whatever the value is."""
    forms = [option, f"no-{option}", *([f"disable-{option[7:]}"] if option.startswith("enable-") else [])]
    known = lists()["0.33.0"].keys()
    beginnings = {form[:length].rstrip("-") for form in forms for length in range(1, len(form))} - known
    for beginning in beginnings - OWNED_ARGUMENTS.keys():
        for value in (True, False, "x", {"kv_role": "kv_both"}):
            found = refused(resource(engine={"image": "team/vllm:1", "args": {beginning: value}}))
            assert "This option cannot be set in args" in found.get(f"spec.engine.args.{beginning}", ""), beginning


@pytest.mark.parametrize(
    "name", ["kv_transfer_config", "kv-transfer-config.kv_role", "-tp", "--hf-token", "HF-TOKEN", "O3"]
)
def test_an_option_has_one_spelling(document: Callable[..., dict[str, Any]], name: str) -> None:
    """vLLM's parser also takes underscores, dotted members and short names."""
    assert any(
        "args" in problem.field
        for problem in examine(document(engine={"args": {name: "x"}}), RenderSettings()).problems
    )


@pytest.mark.parametrize("version", lists())
def test_no_option_of_vllm_is_the_beginning_of_one_that_is_refused(version: str) -> None:
    """With an image of another version, it could be taken for the longer one."""
    assert [name for name in lists()[version] if name not in _EVERY and any(o.startswith(name) for o in _EVERY)] == []


@pytest.mark.parametrize("version", lists())
def test_vllm_knows_every_option_that_is_refused(version: str) -> None:
    assert (REFUSED_ARGUMENTS | OWNED_ARGUMENTS).keys() <= lists()[version].keys()


@pytest.mark.parametrize("version", lists())
def test_every_option_of_a_rendered_command_line_is_in_the_list(version: str) -> None:
    """The parser of the pinned release reads them in tests/engine/test_vllm_parser.py; this is for all releases."""
    options = lists()[version]
    rendered = {
        word.removeprefix("--").partition("=")[0]
        for example in EXAMPLES
        for document in example_documents(example)
        for role in ENGINE_ROLES
        for word in engine_command(PDInference.model_validate(document), role).arguments
        if word.startswith("--")
    }
    assert rendered
    assert rendered <= options.keys()


@pytest.mark.parametrize(
    ("version", "known"), [("0.32.0", False), ("0.33.0", True)], ids=["has no such option", "has it"]
)
def test_options_are_those_of_the_image(resource: Make, version: str, known: bool) -> None:
    image = f"docker.io/vllm/vllm-openai:v{version}"
    found = refused(resource(engine={"image": image, "args": {"watchdog-config": {"a": 1}}}))
    wanted = {} if known else {"spec.engine.args.watchdog-config": f"vLLM {version} has no such option."}
    assert found.keys() == wanted.keys()
    assert all(found[field].startswith(words) for field, words in wanted.items())


@pytest.mark.parametrize("image", ["team/vllm:custom", f"docker.io/vllm/vllm-openai@sha256:{'0' * 64}"])
def test_the_field_names_the_release_of_an_image_whose_tag_does_not(resource: Make, image: str) -> None:
    def found(version: str, **args: Any) -> tuple[list[str], list[str]]:
        spec = resource(engine={"image": image, "version": version, "args": args}).spec
        return [p.field for p in option_problems(spec)], [p.field for p in option_warnings(spec)]

    assert found("0.33.0", **{"watchdog-config": {"a": 1}}) == ([], [])
    assert found("0.32.0", **{"watchdog-config": {"a": 1}}) == (["spec.engine.args.watchdog-config"], [])
    assert found("0.99.0", **{"watchdog-config": {"a": 1}}) == ([], [])
    assert found("0.99.0", **{"no-such-option": 1}) == ([], ["spec.engine.args.no-such-option"])


def test_the_field_prevails_over_the_tag_and_changes_no_object(resource: Make) -> None:
    image = "docker.io/vllm/vllm-openai:v0.32.0"
    named = resource(engine={"image": image, "version": "0.33.0", "args": {"watchdog-config": {"a": 1}}})
    unnamed = resource(engine={"image": image, "args": {"watchdog-config": {"a": 1}}})
    assert list(option_problems(named.spec)) == []
    assert len(list(option_problems(unnamed.spec))) == 1
    assert render(named, RenderSettings()) == render(unnamed, RenderSettings())


@pytest.mark.parametrize("name", ["disable-prefix-caching", "disable-ssl-refresh", "disable-lora"])
@pytest.mark.parametrize("tag", ["v0.32.0", "v0.33.0", "custom"])
def test_a_switch_of_the_operator_has_no_second_name(resource: Make, name: str, tag: str) -> None:
    found = refused(resource(engine={"image": f"team/vllm:{tag}", "args": {name: True}}))
    assert "This option cannot be set in args" in found[f"spec.engine.args.{name}"]


def test_p_and_d_agree_under_both_names_of_a_switch(resource: Make) -> None:
    found = resource(
        engine={"image": "docker.io/vllm/vllm-openai:v0.33.0"},
        parameter={"args": {"enable-hybrid-kv-cache-manager": True}},
    )
    assert "enable-hybrid-kv-cache-manager" in " ".join(problem.field for problem in pair_problems(found.spec))


def test_an_option_that_vllm_has_removed_says_what_to_use_now(resource: Make) -> None:
    found = refused(resource(engine={"args": {"swap-space": 4}}))
    assert found["spec.engine.args.swap-space"].endswith(
        "has no such option. vLLM no longer has swap space. kvTiers.cpu.size of the role keeps KV blocks in CPU memory."
    )
