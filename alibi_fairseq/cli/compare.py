"""``alibi-fairseq compare`` and ``probe``: position methods on your own text, or on synthetic sequences."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from ..data.probes import MULTIPLES, PROBES
from ..errors import BadInput
from ..experiments.comparison import Comparison, Corpus, from_mapping, load
from .experiments import ExperimentOptions
from .options import names, option

FIELDS = Comparison.__pydantic_fields__ | Corpus.__pydantic_fields__  # type: ignore[attr-defined]
#: Fields of a corpus that are options.
TEXT = ("tokenizer", "vocabulary")


@dataclass(kw_only=True)
class ComparisonOptions(ExperimentOptions):
    """A comparison of which the command line gives some fields; absent ones keep their defaults."""

    OPTIONS: ClassVar[tuple[str, ...]]
    #: Other defaults than the fields'.
    DEFAULTS: ClassVar[dict[str, Any]] = {}

    out: Path = option("for everything that is made", required=True, metavar="FOLDER")
    user_dir: str | None = None
    given: dict = field(default_factory=dict)  # of the comparison
    text: dict = field(default_factory=dict)  # of its corpus

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        for name in (*cls.OPTIONS, *TEXT):
            default = cls.DEFAULTS.get(name, FIELDS[name].default)
            several = isinstance(default, tuple) and default != ()
            shown = ",".join(map(str, default)) if several else default or "none"
            parser.add_argument(
                _flag(name),
                dest=name,
                type=names if several else str,
                metavar="A,B,…" if several else "N" if isinstance(default, float | int) else "X",
                help=f"{FIELDS[name].description} (default: {shown})",
            )

    @classmethod
    def run(cls, args: argparse.Namespace) -> int | None:
        options = {name: value for name, value in vars(args).items() if value is not None}
        args.given = {name: options[name] for name in (*cls.OPTIONS, "hours") if name in options}
        args.text = {name: options[name] for name in TEXT if name in options}
        return super().run(args)

    def compare(self, comparison: Comparison, speeds: bool = False) -> int:
        from fairseq.models import ARCH_MODEL_REGISTRY

        from ..experiments.compare import Compare

        ours = sorted(name for name in ARCH_MODEL_REGISTRY if name.startswith("alibi_lm"))
        if comparison.arch not in ours:
            raise BadInput(
                f"--arch: there is no model '{comparison.arch}'; choose {', '.join(ours)}."
            )
        command = None
        if self.job:
            command = ["alibi-fairseq", *self.arguments[: self.arguments.index("--job")]]
        if speeds and self.slurm:
            raise BadInput("--speeds measures the machine it runs on; leave it out with --slurm.")
        experiment = Compare(comparison, self.out, self.parallel, command=command, speeds=speeds)
        return self.run_experiment(experiment, plans_itself=True)


@dataclass(kw_only=True)
class CompareVerb(ComparisonOptions):
    """Methods on a text, a folder of binary data, or what a YAML file describes."""

    OPTIONS = (
        *("methods", "train_lengths", "eval_lengths", "seeds", "strides", "score_from", "score_to"),
        *("per_document", "arch", "updates"),
        *("tokens_per_update", "lr", "tune_share", "train_flags", "subset", "title"),
    )

    sources: list[str] = option(
        "text files or folders; or a folder of fairseq's binary data; or a YAML file that "
        "describes the comparison (docs/experiments.md)",
        nargs="+",
        metavar="TEXT|DATA_BIN|YAML",
    )
    probes: list[str] = option(
        f"also train models on {' or '.join(PROBES)}, and show how they do at 1 and 4 L",
        (),
        type=names,
        metavar="A,B,…",
    )
    speeds: bool = option(
        "at the end time training and evaluation of all models in turns, relative to sinusoidal; "
        "nothing else should run then",
        False,
    )

    def __call__(self) -> int:
        return self.compare(self.comparison(), self.speeds)

    def comparison(self) -> Comparison:
        """What the options or the YAML file describe."""
        first = Path(self.sources[0])
        if any(source.endswith((".yaml", ".yml")) for source in self.sources):
            probes = ["--probes"] if self.probes else []
            if more := [*map(_flag, (*self.given, *self.text)), *probes, *self.sources[1:]]:
                raise BadInput(
                    f"{first} describes the whole comparison; change it there instead of giving "
                    f"{', '.join(more)}."
                )
            return replace(load(first), user_dir=self.user_dir)
        corpus = corpus_of(self.sources, self.text)
        data = str(self.out / corpus["name"] / "data-bin") if "text" in corpus else corpus["data"]
        corpora = [corpus]
        for name in self.probes:
            in_text = name in PROBES and PROBES[name].in_text
            corpora.append({"name": name, "probe": name, **({"data": data} if in_text else {})})
        return from_mapping({**self.given, "corpora": corpora, "user_dir": self.user_dir})


@dataclass(kw_only=True)
class ProbeVerb(ComparisonOptions):
    """Methods on a probe."""

    OPTIONS = (
        *("methods", "train_lengths", "seeds", "arch", "updates", "tokens_per_update", "lr"),
        "train_flags",
    )
    DEFAULTS = {"train_lengths": (64,), "updates": 2000, "lr": (0.002,)}

    probe: str = option(
        "copy: a random string after a gap; passkey: a key planted in running text. Tested at "
        f"{', '.join(map(str, MULTIPLES))} times the training length",
        metavar="|".join(PROBES),
    )
    sources: list[str] = option(
        "of passkey: text files or folders, or a folder of fairseq's binary data",
        nargs="*",
        metavar="TEXT|DATA_BIN",
    )

    def __call__(self) -> int:
        if self.probe in PROBES and PROBES[self.probe].in_text != bool(self.sources):
            raise BadInput(
                f"The probe '{self.probe}' "
                + ("takes no text; leave it out." if self.sources else "is planted in a text.")
            )
        corpus = corpus_of(self.sources, self.text) if self.sources else {}
        described = {
            **self.DEFAULTS,
            **self.given,
            "title": f"Probe: {self.probe}",
            "corpora": [{**corpus, "probe": self.probe, "name": self.probe}],
            "user_dir": self.user_dir,
        }
        if self.hours is not None and "updates" not in self.given:
            del described["updates"]
        return self.compare(from_mapping(described))


def corpus_of(sources: Sequence[str], text: dict) -> dict:
    """What a description says of texts, or of a folder of binary data, named on the command line."""
    first = Path(sources[0])
    if (first / "dict.txt").is_file():
        if len(sources) > 1 or text:
            raise BadInput(f"{first} is binary data already; give it alone and without {text}.")
        name = first.parent.name if first.name == "data-bin" else first.name
        return {"name": name or "data", "data": str(first)}
    for source in sources:
        if not Path(source).exists():
            raise BadInput(f"{source}: there is no such file or folder.")
    return {"name": first.resolve().name.split(".")[0], "text": list(sources), **text}


def _flag(name: str) -> str:
    return "--vocab-size" if name == "vocabulary" else "--" + name.replace("_", "-")
