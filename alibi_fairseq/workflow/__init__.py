"""Long work in steps: each is done once, under a lock, and resumed where it was interrupted.

================================ =============================================================
:func:`~.lock.locked`            one process at a time in a folder
:class:`~.stamp.Stamp`           a file beside an output that says what it was made from
:func:`~.stamp.once`             a function whose JSON result is kept in a stamp
:class:`~.stamp.Claim`           a folder belongs to work with these settings
:class:`~.command.Command`       a subprocess with a log, a progress bar and a way to stop it
:class:`~.step.Step`             a command or a function, and how to tell whether it is done
:func:`~.step.run_chains`        chains of steps, one after the other or several at a time
:func:`~.step.exit_code`         runs all of it and turns the outcome into an exit code
:class:`~.jobs.Work`             all of this as jobs of a cluster, by :func:`~.slurm.submit`
================================ =============================================================

A chain such as "train, then evaluate" for several models, two at a time, with one thread each::

    def work():
        with locked(folder):
            run_step(prepare)
            run_chains([("alibi", [train_alibi, evaluate_alibi]), ...], parallel=2)
            run_step(report)

    sys.exit(exit_code(work))  # 0; 75 when asked to stop: the same command resumes

where a training that saves when it is asked to stop, and an evaluation in this process, are::

    stamp = Stamp(folder / "trained.json", settings, outputs=[folder / "checkpoint_best.pt"])
    train = Step(
        "training alibi",
        Command([sys.executable, "-m", "alibi_fairseq", "train", ...], folder / "train.log", 600),
        done=stamp.holds,
        finish=stamp.write,
    )
    stamp = Stamp(folder / "results.json", settings, sources=[folder / "checkpoint_best.pt"])
    evaluate = Step("evaluating alibi", lambda: once(stamp, measure), done=stamp.holds)
    ...
    stamp.result  # what ``measure`` returned
"""

from .command import Command, Failed, Stopped
from .jobs import Stage, Work, run_job, stages_of
from .lock import locked
from .stamp import Claim, Stamp, once
from .step import Step, exit_code, run_chains, run_step

__all__ = [
    "Claim",
    "Command",
    "Failed",
    "Stage",
    "Stamp",
    "Step",
    "Stopped",
    "Work",
    "exit_code",
    "locked",
    "once",
    "run_chains",
    "run_job",
    "run_step",
    "stages_of",
]
