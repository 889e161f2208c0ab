"""The runs of a comparison: for each model its training, the trials of its learning rate, its evaluations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

from ..data.probes import MULTIPLES
from ..files import sha256_file
from ..positions import METHODS
from ..results.measurements import model_label
from ..runs.run import EvalStep, ProbeEvalStep, Run
from ..runs.tuning import Trial, TunedRun, Tuning
from .comparison_config import ComparisonConfig, CorpusConfig, ModelSpec, at_length, tokens_at
from .corpus_preparation import data_folder, text_folder


def runs_of(
    comparison: ComparisonConfig, folder: Path, tuned: Path | None = None
) -> list[TunedRun]:
    """The runs in their order; the outcomes of trials may have a folder of their own."""
    corpora = {corpus.name: corpus for corpus in comparison.corpora}
    runs = []
    for cell in comparison.cells():
        corpus = corpora[cell.corpus]
        data = data_folder(corpus, cell.train_length, folder)
        tuning = tuning_of(comparison, cell, data, folder, tuned or folder)
        run = run_of(comparison, cell, data, folder, tuning.lr)
        sweeps = sweeps_of(comparison, corpus, cell, run.folder, folder)
        run = replace(run, evaluations=tuple(sweeps))
        runs.append(TunedRun(**vars(run), tuning=tuning))
    return runs


def run_of(
    what: ComparisonConfig, cell: ModelSpec, data: Path, folder: Path, lr: float, end: str = ""
) -> Run:
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
        *("--lr", str(lr), *_schedule(what)),
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
    return Run(name, folder / name, str(data), flags, settings, what.updates, what.tokens)


def _schedule(what: ComparisonConfig) -> list[str]:
    """Return the options of the learning-rate schedule."""
    if what.lr_schedule == "inverse_sqrt":
        return ["--lr-scheduler", "inverse_sqrt"]
    # fairseq's command line does not take --total-num-update from --max-update.
    return ["--lr-scheduler", "polynomial_decay", "--total-num-update", str(what.updates)]


def model_name(cell: ModelSpec) -> str:
    """The beginning of the names of a model's runs."""
    return f"{cell.corpus}/{cell.method}-{cell.train_length}"


def tuning_of(
    what: ComparisonConfig, cell: ModelSpec, data: Path, folder: Path, tuned: Path
) -> Tuning:
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
    return Tuning.choose(label, tuple(trials), tuned / f"{model_name(cell)}-tuning.json")


def sweeps_of(
    what: ComparisonConfig, corpus: CorpusConfig, cell: ModelSpec, results: Path, folder: Path
) -> Iterator[EvalStep]:
    """The evaluations of a model: as trained, with each variant's options, on each other corpus."""
    length, method = cell.train_length, cell.method
    # The table of learned positions ends at the training length.
    base = {"clamp_learned_positions": True} if method == "learned" else {}
    if corpus.probe:
        lengths = tuple(multiple * length for multiple in MULTIPLES)
        flags = (*_overriding(base), *_user_dir(what))
        yield ProbeEvalStep(results / "results.json", lengths, flags=flags)
        return
    keys = ("score_from", "score_to", "per_document")
    cut = {key: value for key in keys if (value := getattr(what, key))}
    more = [*_user_dir(what)]
    for key, value in cut.items():
        more += [f"--{key.replace('_', '-')}", str(value)]
    lengths = tokens_at(what.eval_lengths, length)
    plain = EvalStep(results / "results.json", lengths, what.strides, what.subset, settings=cut)
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


def _user_dir(comparison: ComparisonConfig) -> tuple[str, ...]:
    return ("--user-dir", comparison.user_dir) if comparison.user_dir else ()


def sha256_if_there(path: Path) -> str | None:
    """The hash of a file that all runs share; None before it is there."""
    return _sha256(path.resolve(), path.stat().st_mtime_ns) if path.is_file() else None


@cache
def _sha256(path: Path, changed: int) -> str:
    return sha256_file(path)
