"""``alibi-fairseq compare``: the runs of a comparison, and its table and figure."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import torch
import yaml

from ..data.own_text import OwnText
from ..data.parallel import cores
from ..data.pipeline import prepare as prepare_text
from ..data.probes import MULTIPLES, PROBES
from ..data.probes import prepare as prepare_probe
from ..errors import BadInput
from ..files import atomic_write, sha256_file
from .comparison import Comparison, Corpus, as_mapping
from .hours import measure, updates_that_fit
from .run import Evaluation, ProbeSweep, Run, Sweep
from .runner import Experiment, default_parallel

EXPORT = (
    "`alibi-fairseq export` gives these models to Hugging Face with code of ours; with --arch "
    "alibi_lm_bloom, ALiBi becomes a BLOOM model that needs none (docs/checkpoints.md)."
)
#: What two comparisons must share to have the same number of updates.
_FIXED = ("hours", "arch", "tokens_per_update", "lr", "train_flags")


@dataclass(frozen=True)
class Compare(Experiment):
    """A comparison as an :class:`.runner.Experiment`.

    Attributes:
        folder: the folder for everything.
        parallel: number of runs at a time, for which ``hours`` are planned.
        results: the folder for table and figure (default: ``folder``).
        command: the command to name in the results (default: this program's own).
    """

    comparison: Comparison
    folder: Path
    parallel: int | None = None
    results: Path | None = None
    command: list[str] | None = None

    option = "--out"

    @property
    def prepared(self) -> bool:
        runs = runs_of(self.comparison, self.folder)
        return all((Path(run.data) / "train.bin").is_file() for run in runs)

    def prepare(self) -> None:
        """Write down what is compared, prepare the texts, and measure the machine for ``hours``."""
        check_model(self.comparison)
        with atomic_write(self.folder / "comparison.yaml") as file:
            yaml.safe_dump(as_mapping(self.comparison), file, sort_keys=False, allow_unicode=True)
        for corpus in self.comparison.corpora:
            data = text_folder(corpus, self.folder)
            if corpus.text:
                text = OwnText(corpus.text, corpus.tokenizer, corpus.vocabulary)
                prepare_text(text, data.parent, cores())
            if (corpus.text or corpus.data) and not (data / "train.bin").is_file():
                raise BadInput(f"{data} has no train.bin; prepare the data again.")
            for length in self.comparison.train_lengths if corpus.probe else ():
                probe, made = PROBES[corpus.probe], data_folder(corpus, length, self.folder)
                prepare_probe(probe, length, data if probe.in_text else None, made)
        if self.budget:
            print(self.budget["said"], flush=True)

    @property
    def runs(self) -> list[Run]:
        what = self.comparison
        if self.budget:
            what = replace(what, hours=None, updates=self.budget["updates"])
        return runs_of(what, self.folder)

    @cached_property
    def budget(self) -> dict | None:
        """The updates that fit into the hours, once the data is there, as ``hours.json`` keeps them.

        They are measured once and hold for methods, seeds and lengths that are added later, whose
        results would not be comparable otherwise.
        """
        hours = self.comparison.hours
        if hours is None or not self.prepared:
            return None
        path, asked = self.folder / "hours.json", as_mapping(self.comparison)
        if path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
            if all(kept["asked"].get(key) == asked[key] for key in _FIXED):
                return kept
        runs = runs_of(self.comparison, self.folder)
        parallel = self.parallel or default_parallel(self, len(runs))
        updates, seconds = updates_that_fit(measure(runs, parallel), hours, parallel)
        said = (
            f"Measured on this machine: {updates:,} updates of each of {len(runs)} runs take about "
            f"{seconds / 3600:.2g} of {hours:g} hours."
        )
        budget = {"asked": asked, "updates": updates, "said": said}
        with atomic_write(path) as file:
            json.dump(budget, file, indent=1)
        return budget

    def report(self) -> None:
        from .comparison_report import write_report

        notes = [self.budget["said"]] if self.budget else []
        folder = self.results or self.folder
        text, files = write_report(self.comparison, self.runs, folder, self.command, notes)
        print(f"\n{text}\n", *files, sep="\n")
        if "alibi" in self.comparison.methods and self.comparison.arch != "alibi_lm_bloom":
            print(f"\n{EXPORT}")

    def cost(self) -> str:
        count, what = len(self.runs), self.comparison
        if what.hours is not None:
            return (
                "--hours will set --max-update, the same for all, once the data is prepared.\n"
                f"{count} runs at most, in {what.hours:g} hours"
            )
        return f"{count} runs of {what.tokens:,} tokens, {count * what.tokens:,} in all"


def runs_of(comparison: Comparison, folder: Path) -> list[Run]:
    """The runs in their order."""
    runs = []
    for corpus, method, length, seed in comparison.cells():
        data = data_folder(corpus, length, folder)
        name = f"{corpus.name}/{method}-{length}-seed{seed}"
        run = run_of(comparison, name, method, length, seed, data, folder / name)
        overrides = overrides_of(method)
        flags = ("--model-overrides", json.dumps(overrides)) if overrides else ()
        flags, results = (*flags, *_user_dir(comparison)), run.folder / "results.json"
        evaluation: Evaluation = Sweep(
            results, comparison.eval_lengths, comparison.strides, comparison.subset, flags=flags
        )
        if corpus.probe:
            lengths = tuple(multiple * length for multiple in MULTIPLES)
            evaluation = ProbeSweep(results, lengths, flags=flags)
        runs.append(replace(run, evaluations=(evaluation,)))
    return runs


def overrides_of(method: str) -> dict:
    """Options of the model in evaluations: the table of learned positions ends at the training length."""
    return {"clamp_learned_positions": True} if method == "learned" else {}


def run_of(
    what: Comparison, name: str, method: str, length: int, seed: int, data: Path, folder: Path
) -> Run:
    """The training of one model of a comparison, without evaluations."""
    task = ["--task", "language_modeling"]
    if method == "transformer_xl":
        task = ["--task", "segment_language_modeling", "--mem-len", str(length)]
    options = [  # that determine the trained model, besides the data
        *task,
        *("--arch", what.arch, "--position-method", method),
        *("--tokens-per-sample", str(length), "--sample-break-mode", "none"),
        *("--max-tokens", str(what.tokens_per_update), "--required-batch-size-multiple", "1"),
        *("--max-update", str(what.updates), "--seed", str(seed)),
        *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--clip-norm", "1.0"),
        *("--lr", str(what.lr), "--lr-scheduler", "inverse_sqrt"),
        *("--warmup-updates", str(max(1, min(4000, what.updates // 6)))),
        *_user_dir(what),
        *what.train_flags,
    ]
    settings = {
        "options": options,
        "train": sha256_if_there(data / "train.bin"),
        "dictionary": sha256_if_there(data / "dict.txt"),
    }
    save_every = max(100, what.updates // 20)  # each checkpoint follows a validation
    flags = (
        *options,
        *("--tensorboard-logdir", str(folder / "tensorboard")),
        *("--save-interval-updates", str(save_every), "--keep-interval-updates", "1"),
        *("--no-epoch-checkpoints", "--log-format", "json", "--log-interval", "5"),
        *(() if torch.cuda.is_available() else ("--cpu",)),
    )
    return Run(name, folder, str(data), flags, settings, what.updates)


def _user_dir(comparison: Comparison) -> tuple[str, ...]:
    return ("--user-dir", comparison.user_dir) if comparison.user_dir else ()


def sha256_if_there(path: Path) -> str | None:
    """The hash of a file that all runs share; None before it is there."""
    return _sha256(path.resolve(), path.stat().st_mtime_ns) if path.is_file() else None


@cache
def _sha256(path: Path, changed: int) -> str:
    return sha256_file(path)


def data_folder(corpus: Corpus, length: int, out: Path) -> Path:
    """The binary data to train on; sequences of a probe are as long as the training's."""
    return out / corpus.name / f"data-{length}" if corpus.probe else text_folder(corpus, out)


def text_folder(corpus: Corpus, out: Path) -> Path:
    return Path(corpus.data) if corpus.data else out / corpus.name / "data-bin"


def check_model(comparison: Comparison) -> None:
    from fairseq.models import ARCH_MODEL_REGISTRY

    ours = sorted(name for name in ARCH_MODEL_REGISTRY if name.startswith("alibi_lm"))
    if comparison.arch not in ours:
        raise BadInput(f"--arch: there is no model '{comparison.arch}'; choose {', '.join(ours)}.")
