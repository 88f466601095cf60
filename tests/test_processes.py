"""Components of the local cluster are found by a variable in their environment."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from e2e.cluster import Cluster, build, controlplane, debian, network, pki, processes, spec, teardown
from e2e.cluster.processes import kill_marked, marked_processes
from e2e.cluster.spec import ClusterSpec

CHAIN = "if [ $1 -gt 0 ]; then exec sh $0 $(($1 - 1)); else exec cat; fi\n"


@pytest.mark.parametrize("other_variables", [0, 400], ids=["small environment", "environment of several pages"])
def test_a_process_is_found_while_it_becomes_another_program(tmp_path: Path, other_variables: int) -> None:
    """The kernel shows no environment at that moment; nsenter becomes etcd so."""
    script = tmp_path / "chain.sh"
    script.write_text(CHAIN)
    cluster = ClusterSpec(name="exec", nodes=0, audit=False, kwok=False, index=0)
    environment = {
        **os.environ,
        **{f"OTHER_{number}": "x" * 100 for number in range(other_variables)},
        processes._MARK: f"{cluster.folder}/chain",
    }
    looks = 0
    with subprocess.Popen(["sh", str(script), "2000"], env=environment, stdin=subprocess.PIPE) as process:
        while _name(process.pid) != "cat":  # it waits for its input, so it has not ended during any look
            assert marked_processes(cluster) == [process.pid]
            looks += 1
    assert looks > 1


def test_ctrl_c_while_a_cluster_comes_up_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a process in place of etcd, without what else a cluster changes on this machine."""
    monkeypatch.setenv("PDINFERENCE_STATE", str(tmp_path))
    unused = ((spec, "check"), (debian, "require"), (build, "prepare"), (network, "create"), (pki, "ensure"))
    for module, name in unused:
        monkeypatch.setattr(module, name, lambda *_: None)
    monkeypatch.setattr(teardown, "remove", kill_marked)
    started = list[ClusterSpec]()

    def interrupted(cluster: ClusterSpec) -> None:
        environment = {**os.environ, processes._MARK: f"{cluster.folder}/etcd"}
        subprocess.run(["setsid", "--fork", "sleep", "1000"], env=environment, check=True)
        assert marked_processes(cluster)
        started.append(cluster)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(controlplane, "ensure", interrupted)
    with pytest.raises(KeyboardInterrupt), Cluster.fresh("interrupted", nodes=0):
        pass
    (cluster,) = started
    assert marked_processes(cluster) == []


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()
