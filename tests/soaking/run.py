"""One run that is interrupted again and again until it has come to its end."""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass, field
from pathlib import Path

from soaking.attempts import Attempt, Moment, attempt
from soaking.damage import DAMAGES, damage_last
from soaking.works import INTERVAL, Work, updates_in, updates_of_last

#: 75: saved and stopped; 130: Ctrl-C before there was anything to save.
_EXPECTED = {signal.SIGKILL: (-9, 0), signal.SIGTERM: (-15, 75, 0), signal.SIGINT: (-2, 130, 75, 0)}
_RECOVERED = "the training goes on from"


@dataclass
class Run:
    """One folder from the first start to the end, and what happened to it.

    Attributes:
        cells: of the results.
        harmed: the damage that the next start has to find.
    """

    name: str
    work: Work
    folder: Path
    first: int
    cells: list[dict] = field(default_factory=list)
    harmed: dict | None = None

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do; a damaged checkpoint is to be found first."""
        return not self.harmed and self.work.done(self.folder)

    def start(self, moment: Moment | None) -> Attempt:
        """One attempt, and the checks that follow each; adds its cell if it was interrupted."""
        kept = self.work.kept(self.folder)
        end = attempt(
            self.work.words(self.folder),
            self.log,
            self.work.processes,
            lambda said: self.work.begun(said, self.folder),
            moment,
            lambda said: self.work.phase(said, self.folder),
        )
        if self.harmed and _RECOVERED in end.said:
            self.harmed["problems"] = ""
            self.harmed = None
        problems = []
        if self.work.kept(self.folder)[: len(kept)] != kept:
            problems.append("finished results are gone")
        if "Traceback" in end.said and moment is None:
            problems.append("traceback")
        if end.hit and moment:
            self.cells.append(self.cell(end, moment, problems))
        elif set(end.codes) != {0}:
            raise RuntimeError(f"{self.name} ended with {end.codes}:\n{end.said[-3000:]}")
        return end

    def cell(self, end: Attempt, moment: Moment, problems: list[str]) -> dict:
        """What one signal did."""
        cell = {
            **self.identity(moment.number.name),
            "during": end.phase,
            "receiver": "all processes" if moment.whole else "one process",
            "exit_codes": ",".join(map(str, end.codes)),
        }
        allowed = _EXPECTED[moment.number]
        if self.work.processes > 1 and moment.number != signal.SIGKILL and 75 not in end.codes:
            allowed = (*allowed, 1, -6, -9)  # the other process has nobody left to talk to
        if not set(end.codes) <= set(allowed):
            problems.append(f"exit codes {end.codes}")
        if self.name.startswith("training") and not self.harmed:
            lost = max(0, updates_in(end.said) - updates_of_last(self.folder))
            cell["lost_updates"] = lost
            if lost > (0 if 75 in end.codes else INTERVAL):
                problems.append(f"{lost} updates lost")
        return {**cell, "problems": "; ".join(problems)}

    def identity(self, fault: str) -> dict:
        return {
            **{"name": "soak", "baseline": None, "ratio": None, "work": self.name},
            **{"trial": self.first + len(self.cells), "fault": fault},
        }

    def harm(self, chance: random.Random) -> None:
        """Damage ``checkpoint_last.pt`` if another checkpoint can replace it."""
        if self.harmed or self.done:
            return
        kind = chance.choice(list(DAMAGES))
        lost = damage_last(self.folder, kind, chance)
        if lost is not None:
            self.harmed = {**self.identity(f"checkpoint_last.pt {kind}"), "lost_updates": lost}
            self.harmed |= {"problems": "nobody noticed", "during": "between two starts"}
            self.cells.append(self.harmed)


def moment_of(chance: random.Random, whole: Attempt, training: bool) -> Moment:
    """When to interrupt, given how long an uninterrupted run took."""
    start_up = whole.seconds - whole.work_seconds
    begun = chance.random() < 0.75
    seconds = chance.uniform(0, whole.work_seconds if begun else start_up)
    number, everything = chance.choice(list(_EXPECTED)), chance.random() < 0.5
    everything &= number == signal.SIGKILL
    phases = ("", "", "checkpoint", "checkpoint", "validation") if training and begun else ("",)
    return Moment(begun, seconds, number, everything, chance.randrange(2), chance.choice(phases))


def interrupted_run(
    run: Run, whole: Attempt, expected: str, kills: int, chance: random.Random
) -> list[dict]:
    """Start a work in an empty folder until it has come to its end; returns the cells.

    Args:
        whole: the uninterrupted run.
        expected: its final state.
        kills: at most so many interruptions; then it is left alone.
    """
    run.folder.mkdir()
    for _ in range(kills):
        if run.done:
            break
        training = run.name.startswith("training")
        if not run.start(moment_of(chance, whole, training)).hit:
            break
        if training and chance.random() < 0.4:
            run.harm(chance)
    else:
        if not run.done:
            run.start(None)
    same = run.work.state(run.folder) == expected
    for cell in run.cells:
        cell["same_bits"] = same
    return run.cells
