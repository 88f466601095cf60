"""Components of the local cluster are found by a variable in their environment."""

import os
import subprocess
from pathlib import Path

from e2e.cluster import processes
from e2e.cluster.processes import marked_processes
from e2e.cluster.spec import ClusterSpec

CHAIN = "if [ $1 -gt 0 ]; then exec sh $0 $(($1 - 1)); fi\n"


def test_a_process_is_found_while_it_becomes_another_program(tmp_path: Path) -> None:
    """The kernel shows no environment at that moment; nsenter becomes etcd so."""
    script = tmp_path / "chain.sh"
    script.write_text(CHAIN)
    cluster = ClusterSpec(name="exec", nodes=0, audit=False, kwok=False, index=0)
    environment = {**os.environ, processes._MARK: f"{cluster.folder}/chain"}
    looks = 0
    with subprocess.Popen(["sh", str(script), "400"], env=environment) as process:
        while process.poll() is None:
            found = marked_processes(cluster)
            looks += 1
            assert found == [process.pid] or process.poll() is not None
    assert looks > 1
