"""Trainings on several nodes.

The runner is one process on the first node. It starts a training with srun, or with the command in
``ALIBI_NODE_LAUNCHER``, which executes this module once on each node. There, this module runs
torchrun and passes stop signals on to its workers.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
import zlib
from collections.abc import Sequence

from ..errors import STOPPED_EARLY, UserInputError
from .child_process import ALIBI
from .slots import Slot
from .stoppable_command import execute_command
from .stopping import stop_requests

MODULE = "alibi_fairseq.experiment.nodes"
#: Environment variables that describe a cluster (docs/slurm.md).
NODE_LAUNCHER = "ALIBI_NODE_LAUNCHER"
CONTAINER = "ALIBI_CONTAINER"
#: Meeting point in commands that are only printed.
UNKNOWN_ENDPOINT = "FIRST_NODE:PORT"


def reaches_other_nodes() -> bool:
    """Return True if this process can start commands on other nodes."""
    return "SLURM_JOB_ID" in os.environ or NODE_LAUNCHER in os.environ


def check_reaches_other_nodes(nodes: int) -> None:
    """Raise UserInputError if this process cannot start commands on other nodes."""
    if not reaches_other_nodes():
        raise UserInputError(
            f"--nodes {nodes} requires a way to start commands on other nodes. Pass --slurm, run "
            f"this command in an allocation of SLURM, or set {NODE_LAUNCHER} (docs/slurm.md)."
        )


def program(launcher: Sequence[str], nodes: int) -> tuple[str, ...]:
    """Return the command ``alibi-fairseq`` with several processes, on one node or on several.

    Args:
        launcher: interpreter arguments that start the processes of a node, such as torchrun's.
        nodes: number of nodes, on each of which the command executes once.
    """
    python, *module = ALIBI
    if nodes == 1:
        return (python, *launcher, *module)
    on_each_node = shlex.split(os.environ.get(NODE_LAUNCHER, ""))
    if not on_each_node:
        # The job of an experiment is itself a step, whose resources this step shares.
        on_each_node = ["srun", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}"]
        on_each_node += ["--ntasks-per-node=1", "--cpu-bind=none", "--kill-on-bad-exit=1"]
    container = shlex.split(os.environ.get(CONTAINER, ""))
    return (*on_each_node, *container, python, "-m", MODULE, *launcher, *module)


def rendezvous_endpoint(run_name: str) -> str:
    """Return ``HOST:PORT`` on this node, at which all nodes of a run meet.

    The port depends on the job and the run, because several of them can share this node.
    """
    if not reaches_other_nodes():
        return UNKNOWN_ENDPOINT
    host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    job = os.environ.get("SLURM_JOB_ID", "")
    # Below the ports that Linux gives to outgoing connections.
    port = 20_000 + zlib.crc32(f"{job} {run_name}".encode()) % 12_000
    return f"{host}:{port}"


def main() -> None:
    """Run Python with the given arguments on this node, and pass stop signals on to it.

    A training that was asked to stop ends with 0. After any other code, srun would kill the
    launchers of the other nodes, and the runner, which asked, knows the reason.
    """
    with stop_requests() as stop:
        code = execute_command([sys.executable, *sys.argv[1:]], slot=Slot(stop=stop))
    if stop.count and code == STOPPED_EARLY:
        code = 0
    sys.exit(code)


if __name__ == "__main__":
    main()
