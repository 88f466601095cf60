"""Signatures of a release: each digest once, and what is left after a failure."""

from pathlib import Path

import pytest

from e2e.publish import sign_all
from e2e.release import ReleaseError

DIGESTS = {"registry.example:5000/a:1": "sha256:aa", "registry.example:5000/b:1": "sha256:bb"}
SIGNED = ["registry.example:5000/a@sha256:aa", "registry.example:5000/b@sha256:bb"]


@pytest.fixture
def signer(tmp_path: Path) -> Path:
    """A program that notes its argument, and fails for those in the file `refused`."""
    program = tmp_path / "sign"
    program.write_text(
        "#!/bin/sh\n"
        f"if grep -qsxF $1 {tmp_path}/refused; then echo 'no key' >&2; exit 1; fi\n"
        f"echo $1 >> {tmp_path}/signed\n"
    )
    program.chmod(0o755)
    return program


def test_each_digest_is_signed(signer: Path) -> None:
    sign_all([str(signer)], DIGESTS)
    assert signer.with_name("signed").read_text().split() == SIGNED


def test_a_failure_names_its_cause_and_the_commands_that_are_left(signer: Path) -> None:
    signer.with_name("refused").write_text(SIGNED[1] + "\n")
    with pytest.raises(ReleaseError) as raised:
        sign_all([str(signer)], DIGESTS)
    assert signer.with_name("signed").read_text().split() == SIGNED[:1]
    assert "failed: no key" in str(raised.value)
    assert str(raised.value).endswith(f"sign the rest:\n  {signer} {SIGNED[1]}")
