"""kubectl against one cluster."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.cluster.paths import binaries


class KubectlError(RuntimeError):
    """A command failed; the text is what it said."""


class Kubectl:
    """kubectl (and helm) for one kubeconfig and namespace.

    Attributes:
        namespace: Where namespaced commands go.
    """

    def __init__(self, kubeconfig: Path | None, namespace: str) -> None:
        self.namespace = namespace
        path = f"{binaries()}{os.pathsep}{os.environ['PATH']}"
        # None is the cluster of the user's own kubeconfig.
        self._environment = {**os.environ, "PATH": path} | ({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})

    def run(self, *words: str | Path, stdin: str | None = None, timeout: float = 120) -> str:
        """Run kubectl and return what it prints.

        Raises:
            KubectlError: It failed.
        """
        return self.command("kubectl", "-n", self.namespace, *words, stdin=stdin, timeout=timeout)

    def get(self, *words: str) -> Any:
        """Get objects as JSON data."""
        return json.loads(self.run("get", *words, "-o", "json"))

    def pdi(self, *words: str) -> str:
        """Run `kubectl pdi` and return what it prints.

        Raises:
            KubectlError: It failed.
        """
        return self.command("kubectl", "pdi", *words, "--namespace", self.namespace, timeout=300)

    def command(self, *words: str | Path, stdin: str | None = None, timeout: float = 120) -> str:
        """Run any command with this cluster's kubeconfig.

        Raises:
            KubectlError: It failed, or gave no answer in time.
        """
        try:
            done = subprocess.run(
                [str(word) for word in words],
                input=stdin,
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except FileNotFoundError:
            raise KubectlError(f"{words[0]} is not installed, or not on PATH.") from None
        except subprocess.TimeoutExpired:
            raise KubectlError(f"{' '.join(map(str, words))}: no answer within {timeout:.0f} s.") from None
        if done.returncode:
            raise KubectlError(f"{' '.join(map(str, words))}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    @contextmanager
    def log_of(self, pod: str) -> Iterator[Callable[[], str]]:
        """Follow what a pod writes; the function waits until its container has ended, and returns all of it."""
        words = ["kubectl", "-n", self.namespace, "logs", "--follow", pod]
        with (
            subprocess.Popen(
                words, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            ) as process,
            ThreadPoolExecutor(1) as reader,
        ):
            text = reader.submit(lambda: process.stdout.read() if process.stdout else "")
            try:
                yield lambda: text.result(timeout=120)
            finally:
                process.terminate()

    @contextmanager
    def port_forward(self, target: str, port: int) -> Iterator[str]:
        """Reach a port of a Service or pod from here, at a URL with a free local port.

        Raises:
            KubectlError: There is nothing to forward to.
        """
        words = ["kubectl", "-n", self.namespace, "port-forward", target, f":{port}"]
        with subprocess.Popen(
            words, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            try:
                line = process.stdout.readline() if process.stdout else ""
                match = re.search(r"Forwarding from (127\.0\.0\.1:\d+)", line)
                if not match:
                    raise KubectlError(f"{' '.join(words)}: {line.strip()}")
                yield f"http://{match[1]}"
            finally:
                process.terminate()
