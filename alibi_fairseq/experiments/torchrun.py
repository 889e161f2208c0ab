"""torchrun that does not restart processes which refused their input (exit code 2)."""

from __future__ import annotations

import sys

from torch.distributed import run
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

BAD_INPUT = 2


def main() -> None:
    """As ``torchrun``; exits with 2, without its report, if a process exited with 2."""
    monitor = LocalElasticAgent._monitor_workers

    def monitor_workers(agent, group):
        result = monitor(agent, group)
        if any(failure.exitcode == BAD_INPUT for failure in result.failures.values()):
            agent._remaining_restarts = 0
        return result

    LocalElasticAgent._monitor_workers = monitor_workers  # type: ignore[method-assign]
    try:
        run.main()
    except ChildFailedError as error:
        if any(failure.exitcode == BAD_INPUT for failure in error.failures.values()):
            sys.exit(BAD_INPUT)
        raise


if __name__ == "__main__":
    main()
