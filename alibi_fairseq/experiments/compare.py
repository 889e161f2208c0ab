"""``alibi-fairseq compare``: the runs of a comparison, and its table and figure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import torch
import yaml

from ..data.parallel import cores
from ..data.probes import MULTIPLES
from ..files import atomic_write, sha256_file
from ..positions import METHODS
from ..results.points import model_label
from ..results.schema import load_document
from .comparison import Cell, Comparison, Corpus, as_mapping, at_length, tokens_at
from .corpora import data_folder, is_prepared, prepare, text_folder
from .hours import measure, updates_that_fit
from .run import ProbeSweep, Run, Sweep, trials_of
from .runner import Experiment, default_parallel
from .speeds import Columns, measure_speeds, speed_columns, with_baseline
from .tuning import Trial, Tuning, tuning_table

EXPORT = (
    "`alibi-fairseq export` gives these models to Hugging Face with code of ours; with --arch "
    "alibi_lm_bloom, ALiBi becomes a BLOOM model that needs none (docs/checkpoints.md)."
)
#: What two comparisons must share to have the same number of updates.
_FIXED = ("hours", "arch", "tokens_per_update", "lr", "train_flags")


@dataclass(frozen=True)
class Compare(Experiment):
    """A comparison as an :class:`.runner.Experiment`."""

    comparison: Comparison
    folder: Path
    parallel: int | None = None  # for which hours are planned
    command: list[str] | None = None  # to name in the results (default: this program's own)
    speeds: bool = False

    option = "--out"

    @property
    def prepared(self) -> bool:
        what = self.comparison
        return all(is_prepared(corpus, what.train_lengths, self.folder) for corpus in what.corpora)

    def prepare(self) -> None:
        """Write down what is compared, prepare the texts, and measure the machine for ``hours``."""
        with atomic_write(self.folder / "comparison.yaml") as file:
            yaml.safe_dump(as_mapping(self.comparison), file, sort_keys=False, allow_unicode=True)
        what = self.comparison
        prepare(what.corpora, what.train_lengths, what.shared_vocabulary, self.folder)
        if self.budget:
            print(self.budget["said"], flush=True)

    @property
    def runs(self) -> list[Run]:
        return runs_of(self.resolved, self.folder)

    @property
    def resolved(self) -> Comparison:
        """The comparison, once the data is there with the updates that fit into its hours."""
        if not self.budget:
            return self.comparison
        return replace(self.comparison, hours=None, updates=self.budget["updates"])

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
        trials, share = trials_of(runs), self.comparison.tune_share
        parallel = self.parallel or default_parallel(self, max(len(runs), len(trials)))
        costs = measure([*trials, *runs], parallel)
        stages = [(costs[: len(trials)], share), (costs[len(trials) :], 1.0)]
        updates, seconds = updates_that_fit(stages, hours, parallel)
        also = f", with {share:g} of them in each of {len(trials)} trials," if trials else ""
        said = (
            f"Measured on this machine: {updates:,} updates of each of {len(runs)} runs{also} take "
            f"about {seconds / 3600:.2g} of {hours:g} hours."
        )
        budget = {"asked": asked, "updates": updates, "said": said}
        with atomic_write(path) as file:
            json.dump(budget, file, indent=1)
        return budget

    def report(self) -> None:
        from .comparison_report import write_report

        notes = [self.budget["said"]] if self.budget else []
        notes += [tuned] if (tuned := tuning_table(self.runs)) else []
        columns = self.speed_columns() if self.speeds else {}
        text, files = write_report(
            self.comparison, self.runs, self.folder, self.command, notes, columns
        )
        print(f"\n{text}\n", *files, sep="\n")
        if "alibi" in self.comparison.methods and self.comparison.arch != "alibi_lm_bloom":
            print(f"\n{EXPORT}")

    def speed_columns(self) -> Columns:
        """Speed and memory beside sinusoidal, measured unless ``speeds.json`` has the same models."""
        runs, path = with_baseline(self.runs), self.folder / "speeds.json"
        document = load_document(path) if path.is_file() else None
        if document is None or len(document["cells"]) != 2 * len(runs):
            lengths = (
                tokens_at(self.comparison.eval_lengths, n) for n in self.comparison.train_lengths
            )
            document = measure_speeds(runs, max(map(max, lengths)), path, cores())
        return speed_columns(document["cells"])

    def cost(self) -> str:
        runs, what = self.runs, self.comparison
        count, trials = len(runs), trials_of(runs)
        if what.hours is not None:
            return (
                "--hours will set --max-update, the same for all, once the data is prepared.\n"
                f"{count} runs at most, in {what.hours:g} hours"
            )
        tried = sum(trial.updates for trial in trials) * what.tokens_per_update
        also = f" and {len(trials)} trials of {tried:,} tokens together" if trials else ""
        total = count * what.tokens + tried
        return f"{count} runs of {what.tokens:,} tokens{also}, {total:,} in all"


def runs_of(comparison: Comparison, folder: Path, tuned: Path | None = None) -> list[Run]:
    """The runs in their order; the outcomes of trials may have a folder of their own."""
    corpora, runs = {corpus.name: corpus for corpus in comparison.corpora}, []
    for cell in comparison.cells():
        corpus = corpora[cell.corpus]
        data = data_folder(corpus, cell.train_length, folder)
        tuning = tuning_of(comparison, cell, data, folder, tuned or folder)
        run = run_of(comparison, cell, data, folder, tuning.lr)
        sweeps = sweeps_of(comparison, corpus, cell, run.folder, folder)
        runs.append(replace(run, evaluations=tuple(sweeps), tuning=tuning))
    return runs


def run_of(what: Comparison, cell: Cell, data: Path, folder: Path, lr: float, end: str = "") -> Run:
    """The training of one model of a comparison, without evaluations; ``end`` of its name."""
    _, method, length, seed = cell
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
        *("--lr", str(lr), "--lr-scheduler", "inverse_sqrt"),
        *("--warmup-updates", str(max(1, min(4000, what.updates // 6)))),
        *_user_dir(what),
        *what.train_flags,
        *(at_length(flag, length) for flag in what.method_flags.get(method, ())),
    ]
    settings = {
        "options": options,
        "train": sha256_if_there(data / "train.bin"),
        "dictionary": sha256_if_there(data / "dict.txt"),
    }
    name = f"{model_name(cell)}-seed{seed}{end}"
    save_every = max(100, what.updates // 20)  # each checkpoint follows a validation
    flags = (
        *options,
        *("--tensorboard-logdir", str(folder / name / "tensorboard")),
        *("--save-interval-updates", str(save_every), "--keep-interval-updates", "1"),
        *("--no-epoch-checkpoints", "--log-format", "json", "--log-interval", "5"),
        *(() if torch.cuda.is_available() else ("--cpu",)),
    )
    return Run(name, folder / name, str(data), flags, settings, what.updates)


def model_name(cell: Cell) -> str:
    """The beginning of the names of a model's runs."""
    return f"{cell.corpus}/{cell.method}-{cell.train_length}"


def tuning_of(what: Comparison, cell: Cell, data: Path, folder: Path, tuned: Path) -> Tuning:
    """How the learning rate of a model is chosen: with the first seed."""
    label = model_label(cell.method, cell.train_length, METHODS[cell.method].display_name)
    label += f" ({cell.corpus})" if len(what.corpora) > 1 else ""
    if len(what.lr) == 1:
        return Tuning(label, what.lr[0])
    short = replace(what, hours=None, updates=max(1, round(what.tune_share * what.updates)))
    first, trials = cell._replace(seed=what.seeds[0]), []
    for lr in what.lr:
        run = run_of(short, first, data, folder, lr, f"-lr{lr:g}")
        trials.append(Trial(**vars(run), lr=lr))
    return Tuning.of(label, tuple(trials), tuned / f"{model_name(cell)}-tuning.json")


def sweeps_of(
    what: Comparison, corpus: Corpus, cell: Cell, results: Path, folder: Path
) -> Iterator[Sweep]:
    """The evaluations of a model: as trained, with each variant's options, on each other corpus."""
    length, method = cell.train_length, cell.method
    # The table of learned positions ends at the training length.
    base = {"clamp_learned_positions": True} if method == "learned" else {}
    if corpus.probe:
        lengths = tuple(multiple * length for multiple in MULTIPLES)
        flags = (*_overriding(base), *_user_dir(what))
        yield ProbeSweep(results / "results.json", lengths, flags=flags)
        return
    keys = ("score_from", "score_to", "per_document")
    cut = {key: value for key in keys if (value := getattr(what, key))}
    more = [*_user_dir(what)]
    for key, value in cut.items():
        more += [f"--{key.replace('_', '-')}", str(value)]
    lengths = tokens_at(what.eval_lengths, length)
    plain = Sweep(results / "results.json", lengths, what.strides, what.subset, settings=cut)
    trained = replace(plain, flags=(*_overriding(base), *more))
    yield trained
    for stride, some in what.sliding.items() if method != "transformer_xl" else ():
        if longer := tuple(each for each in tokens_at(some, length) if each > stride):
            yield replace(trained, lengths=longer, strides=(str(stride),))
    for name, options in what.variants.get(method, {}).items():
        changed = {
            key: length if value == "train_length" else value for key, value in options.items()
        }
        yield replace(
            plain,
            name=name,
            results=results / f"results-{name}.json",
            flags=(*_overriding({**base, **changed}), *more),
            settings={**cut, "overrides": changed},
        )
    for other in what.corpora:
        if other.name in what.also_on and other != corpus and not other.probe:
            yield replace(
                trained,
                name=f"on {other.name}",
                results=results / f"results-on-{other.name}.json",
                data=str(text_folder(other, folder)),
            )


def _overriding(options: dict) -> tuple[str, ...]:
    return ("--model-overrides", json.dumps(options)) if options else ()


def _user_dir(comparison: Comparison) -> tuple[str, ...]:
    return ("--user-dir", comparison.user_dir) if comparison.user_dir else ()


def sha256_if_there(path: Path) -> str | None:
    """The hash of a file that all runs share; None before it is there."""
    return _sha256(path.resolve(), path.stat().st_mtime_ns) if path.is_file() else None


@cache
def _sha256(path: Path, changed: int) -> str:
    return sha256_file(path)
