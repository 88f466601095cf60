"""Files of the field, one of each kind, with all that `convert` prints for them.

The files are written for these tests, as people write them: kinds of KServe, Dynamo, Kthena, AIBrix and LWS, values of
charts, compose files, scripts. `make generate` writes the files `.out`; read the difference before you commit it.
"""

from pathlib import Path

import pytest
from click.testing import CliRunner

from pdinference.cli import main
from tests.conftest import Golden

FILES = Path(__file__).parent / "kinds"


@pytest.mark.parametrize("file", sorted(FILES.glob("*.yaml")) + sorted(FILES.glob("*.sh")), ids=lambda file: file.name)
def test_a_file_of_the_field_is_converted(file: Path, golden: Golden) -> None:
    result = CliRunner().invoke(main, ["convert", "-f", str(file)])
    assert result.exit_code == 0, result.output
    golden(file.with_suffix(".out"), result.stdout)
    assert "hf_0123456789" not in result.output
