"""Command ``alibi-fairseq prepare CORPUS``: fairseq's binary data from text, with a manifest."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..data.bookcorpus import BookCorpus
from ..data.cc100_roberta import Cc100Roberta
from ..data.corpus_builder import CorpusBuilder
from ..data.custom_text import CustomTextBuilder
from ..data.pipeline import prepare_corpus
from ..data.wikitext103 import WikiText103
from ..machine import cores
from ..options import positive_integer
from ..results import manifest as manifests
from .options import add_fields, fill_dataclass

BUILDERS: tuple[type[CorpusBuilder], ...] = (
    CustomTextBuilder,
    WikiText103,
    BookCorpus,
    Cc100Roberta,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each corpus."""
    corpora = parser.add_subparsers(dest="corpus", required=True, metavar="CORPUS")
    for corpus in BUILDERS:
        options = corpora.add_parser(corpus.name, help=corpus.summary, description=corpus.summary)
        options.set_defaults(kind=corpus)
        options.add_argument(
            "--out",
            type=Path,
            default=Path("data") / corpus.name,
            metavar="FOLDER",
            help="output folder; the data is in FOLDER/data-bin (default: %(default)s)",
        )
        options.add_argument(
            "--workers",
            type=positive_integer,
            default=cores(),
            metavar="N",
            help="number of processes (default: all cores)",
        )
        add_fields(options, corpus)


def run(args: argparse.Namespace) -> int:
    """Prepare a corpus, and print the sizes of its splits."""
    manifest, done = prepare_corpus(fill_dataclass(args.kind, args), args.out, args.workers)
    if not done:
        print(
            f"{args.out}/data-bin already exists, from the same text and settings; nothing to do."
        )
    for split, counts in manifest["splits"].items():
        print(f"  {split:5}  {counts['lines']:>13,} lines  {counts['tokens']:>15,} tokens")
    if manifest["identified_by"] is None and args.corpus != "text":
        print(f"This is {manifest['corpus']}, not the paper's text. The manifest records this.")
    print(
        f"Dictionary: {manifest['dictionary']['entries']:,} entries. Data argument for "
        f"training and evaluation:\n{manifests.data_argument(args.out / 'data-bin', manifest)}"
    )
    return 0
