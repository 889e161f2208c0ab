"""Trainings on several GPUs or nodes: torchrun's flags for a machine, and torchrun itself.

``python -m alibi_fairseq.experiments.torchrun`` does not restart processes that refused their input.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import BadInput
from ..paper.recipe import Recipe, flags, merge

TORCHRUN = ["-m", "alibi_fairseq.experiments.torchrun"]
REFUSED = 2


@dataclass(frozen=True)
class Machine:
    """The resources of a run."""

    processes: int  # total over all nodes; each has one GPU, or shares the CPU
    cpu: bool = False
    nodes: int = 1  # each runs the same command once
    rdzv_endpoint: str | None = None  # HOST:PORT on the first node, where all nodes meet
    rdzv_id: str = "alibi"  # the same on all nodes; two jobs with different names never mix


def train_flags(recipe: Recipe, machine: Machine) -> list[str]:
    settings = recipe.settings(machine.processes)
    if machine.cpu:
        half = {name: False for name in settings["common"] if "fp16" in name}
        settings = merge(settings, {"common": {**half, "cpu": True}})
    return flags(settings)


def launcher_flags(machine: Machine, max_restarts: int) -> list[str]:
    """The interpreter's arguments in front of the training: torchrun's, for several processes."""
    if machine.nodes < 1 or machine.processes < 1:
        raise BadInput("The numbers of nodes and of processes must be at least 1.")
    if machine.processes % machine.nodes:
        raise BadInput(
            f"{machine.processes} processes cannot be spread evenly over {machine.nodes} nodes; "
            f"make --{'cpu' if machine.cpu else 'gpus'} a multiple of {machine.nodes}."
        )
    if machine.nodes > 1 and not machine.rdzv_endpoint:
        raise BadInput(
            "With several nodes, --rdzv-endpoint HOST:PORT must name the first node and a free port."
        )
    if machine.processes == 1:
        return []
    flags = [*TORCHRUN, f"--nnodes={machine.nodes}"]
    flags += [f"--nproc-per-node={machine.processes // machine.nodes}"]
    flags += [f"--max-restarts={max_restarts}"]
    if machine.nodes == 1:
        return [*flags, "--standalone"]
    flags += ["--rdzv-backend=c10d", f"--rdzv-endpoint={machine.rdzv_endpoint}"]
    return [*flags, f"--rdzv-id={machine.rdzv_id}"]


def refuse_being_one_of_many(environment: Mapping[str, str], nodes: int) -> None:
    """Refuse several launchers of which each would start the whole run."""
    if "TORCHELASTIC_RUN_ID" in environment or "RANK" in environment:
        raise BadInput("The launcher starts torchrun itself; start it without torchrun.")
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", nodes))
    if tasks != nodes:
        raise BadInput(
            f"srun started {tasks} launchers for {nodes} node{'s' if nodes > 1 else ''}, and each "
            "would start a whole run; use srun --ntasks-per-node=1, and --nnodes with the number "
            "of nodes."
        )


def main() -> None:
    """As ``torchrun``; exits with 2, without its report, if a process exited with 2."""
    from torch.distributed import run
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    monitor = LocalElasticAgent._monitor_workers

    def monitor_workers(agent, group):
        result = monitor(agent, group)
        if any(failure.exitcode == REFUSED for failure in result.failures.values()):
            agent._remaining_restarts = 0
        return result

    LocalElasticAgent._monitor_workers = monitor_workers  # type: ignore[method-assign]
    try:
        run.main()
    except ChildFailedError as error:
        if any(failure.exitcode == REFUSED for failure in error.failures.values()):
            sys.exit(REFUSED)
        raise


if __name__ == "__main__":
    main()
