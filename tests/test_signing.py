"""Signatures and attestations of a release: each digest once, and what is left after a failure."""

from pathlib import Path

import pytest

from e2e.charts import ReleaseError
from e2e.publish import attesting, run_all, signing

PUSHED = {"registry.example:5000/a@sha256:aa": "image-a", "registry.example:5000/b@sha256:bb": "chart"}
FIRST, SECOND = PUSHED


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that notes its arguments, and fails for a last one that is in the file `refused`."""
    program = tmp_path / "cosign"
    program.write_text(
        "#!/bin/sh\n"
        "for last; do :; done\n"
        f"if grep -qsxF $last {tmp_path}/refused; then echo 'no key' >&2; exit 1; fi\n"
        f'echo "$@" >> {tmp_path}/done\n'
    )
    program.chmod(0o755)
    return program


def test_each_digest_is_signed(program: Path) -> None:
    run_all(signing([str(program), "sign"], PUSHED))
    assert program.with_name("done").read_text().splitlines() == [f"sign {FIRST}", f"sign {SECOND}"]


def test_each_digest_has_its_provenance_and_an_image_its_bill_of_materials(program: Path, tmp_path: Path) -> None:
    for name in ("image-a.slsa.json", "image-a.cdx.json", "chart.slsa.json"):
        (tmp_path / name).touch()
    run_all(attesting([str(program), "attest"], PUSHED, tmp_path))
    assert program.with_name("done").read_text().splitlines() == [
        f"attest --type slsaprovenance1 --predicate {tmp_path}/image-a.slsa.json {FIRST}",
        f"attest --type cyclonedx --predicate {tmp_path}/image-a.cdx.json {FIRST}",
        f"attest --type slsaprovenance1 --predicate {tmp_path}/chart.slsa.json {SECOND}",
    ]


def test_without_a_command_nothing_is_signed_or_attested(tmp_path: Path) -> None:
    (tmp_path / "chart.slsa.json").touch()
    assert [*signing([], PUSHED), *attesting([], PUSHED, tmp_path)] == []


def test_a_failure_names_its_cause_and_the_commands_that_are_left(program: Path) -> None:
    program.with_name("refused").write_text(SECOND + "\n")
    with pytest.raises(ReleaseError) as raised:
        run_all(signing([str(program)], PUSHED))
    assert program.with_name("done").read_text().split() == [FIRST]
    assert "failed: no key" in str(raised.value)
    assert str(raised.value).endswith(f"run the rest:\n  {program} {SECOND}")
