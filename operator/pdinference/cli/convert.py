"""`pdinference convert`: converts a vLLM command line or manifest to a PDInference."""

from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import IO, Any

import click
import yaml

from pdinference.api.bounds import MAX_RAW_SPEC_BYTES
from pdinference.api.names import Role
from pdinference.api.plain_text import plain
from pdinference.api.validation import refusal
from pdinference.checks import Examination, examine
from pdinference.cli.file_options import file_option
from pdinference.cli.output import output_option, print_json, say
from pdinference.cli.plain_yaml import PlainDumper
from pdinference.cli.validate import as_json
from pdinference.cli.yaml_files import documents_of, text_of
from pdinference.conversion import (
    Conversion,
    ConversionError,
    Launch,
    Remark,
    convert,
    is_yaml,
    pair_of,
    starts_in_documents,
    starts_in_script,
    starts_in_words,
)
from pdinference.manifests import RenderSettings

_WIDTH = 118
_LONGEST_SUBJECT, _LONGEST_REMARK = 200, 1000
_MOST_REMARKS = 200
_EXAMPLES = """\b
Examples:
  pdinference convert -- vllm serve Qwen/Qwen2.5-7B-Instruct -tp 2
  pdinference convert -f serve.sh
  pdinference convert --parameter prefill.sh --decode decode.sh
"""
_PLAN = "plan --online -f FILE"
_PLAN_OF_FOLDER = "plan --model-dir DIR -f FILE"


@click.command("convert", epilog=_EXAMPLES)
@click.argument("words", metavar="[-- COMMAND...]", nargs=-1)
@file_option(
    "File with the command line (a shell script, or docker run), a compose file, or a manifest with a vLLM container; "
    "- reads standard input.",
    required=False,
)
@file_option("The same for P only; requires --decode.", required=False, names=("--parameter",))
@file_option("The same for D only.", required=False, names=("--decode",))
@click.option("--name", help="Name of the resource.  [default: from the model or workload]")
@output_option()
def convert_command(
    *,
    words: tuple[str, ...],
    source: IO[str] | None,
    parameter: IO[str] | None,
    decode: IO[str] | None,
    name: str | None,
    output: str,
) -> None:
    """Print the PDInference for a vLLM command line, with a comment for each setting that is left out.

    Nothing is executed or expanded. One command line sets the options of P and D. With two command lines, kv_role or
    --parameter and --decode determine the roles.
    """
    given = [bool(words), source is not None, parameter is not None or decode is not None]
    if given.count(True) != 1 or (parameter is None) != (decode is None):
        raise click.UsageError("Give one of: -- COMMAND..., --file, or --parameter and --decode together.")
    try:
        if parameter is not None and decode is not None:
            pair = {Role.PARAMETER: _only(parameter), Role.DECODE: _only(decode)}
            conversion = convert(pair, name)
        else:
            launches = _launches(source) if source is not None else starts_in_words(words)
            conversion = convert(launches[0] if len(launches) == 1 else pair_of(launches), name)
    except ConversionError as error:
        raise click.ClickException(plain(str(error), _LONGEST_REMARK)) from None
    examination = _examined(conversion)
    if output == "json":
        print_json(_as_json(conversion, examination))
    else:
        _print(conversion)
        for warning in examination.warnings:
            say(f"Warning: {warning}", err=True)
    if examination.problems:
        raise click.ClickException(f"Change this first. {_refusal(conversion, examination)}")


def _launches(source: IO[str]) -> list[Launch]:
    text = text_of(source, MAX_RAW_SPEC_BYTES)
    named = Path(source.name).suffix in {".yaml", ".yml", ".json"}
    return starts_in_documents(documents_of(text, source.name)) if named or is_yaml(text) else starts_in_script(text)


def _only(source: IO[str]) -> Launch:
    found = _launches(source)
    if len(found) != 1:
        raise ConversionError(f"{source.name} has {len(found)} starts of vLLM. Give one for each role.")
    return found[0]


def _print(conversion: Conversion) -> None:
    source = conversion.document["spec"]["model"]["source"]
    on_hub = not {"huggingFace", "modelScope"}.isdisjoint(source)
    for line in (*_head(_PLAN if on_hub else _PLAN_OF_FOLDER), *_comments(conversion.remarks)):
        click.echo(f"# {line}".rstrip())
    text = yaml.dump(conversion.document, Dumper=PlainDumper, sort_keys=False, default_flow_style=False, width=_WIDTH)
    click.echo(text, nl=False)


def _head(plan: str) -> tuple[str, ...]:
    return (
        "Made by `pdinference convert`. Before you apply it:",
        f"  pdinference {'validate -f FILE':{len(plan)}}  checks it, without a cluster",
        f"  pdinference {plan}  shows the memory of P and D, and how many requests fit",
    )


def _comments(remarks: tuple[Remark, ...]) -> list[str]:
    lines = list[str]()
    shown = _merged(remarks[:_MOST_REMARKS])
    for title, left_out in (("Left out:", True), ("Look at:", False)):
        items = [remark for remark in shown if remark.left_out is left_out]
        if items:
            lines += ["", title]
        for remark in items:
            lines += _item(f"{remark.subject}: {plain(remark.text, _LONGEST_REMARK)}")
    if len(remarks) > _MOST_REMARKS:
        lines += ["", f"There are {len(remarks) - _MOST_REMARKS} more."]
    return lines


def _merged(remarks: tuple[Remark, ...]) -> list[Remark]:
    """Merge remarks with the same text into one with all subjects."""
    subjects: dict[tuple[str, bool], list[str]] = {}
    for remark in remarks:
        subjects.setdefault((remark.text, remark.left_out), []).append(plain(remark.subject, _LONGEST_SUBJECT))
    return [replace(remarks[0], subject="; ".join(s), text=text, left_out=out) for (text, out), s in subjects.items()]


def _item(text: str) -> list[str]:
    """A list item, wrapped between words only, so that commands can be copied."""
    return wrap(
        text, _WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _examined(conversion: Conversion) -> Examination:
    """The resource, checked like `validate`."""
    return examine(conversion.document, RenderSettings())


def _refusal(conversion: Conversion, examination: Examination) -> str:
    return refusal(conversion.document["metadata"]["name"], examination.problems)


def _as_json(conversion: Conversion, examination: Examination) -> dict[str, Any]:
    """The resource, what is left out of it or should be looked at, and what is wrong with it."""

    def remarks(*, left_out: bool) -> list[dict[str, str]]:
        chosen = [one for one in conversion.remarks[:_MOST_REMARKS] if one.left_out is left_out]
        return [{"subject": one.subject, "text": one.text} for one in chosen]

    return {
        "resource": conversion.document,
        "leftOut": remarks(left_out=True),
        "lookAt": remarks(left_out=False),
        "problems": as_json(examination.problems),
        "warnings": as_json(examination.warnings),
    }
