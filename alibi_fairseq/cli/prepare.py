"""``alibi-fairseq prepare CORPUS``: from text to fairseq's binary data with a manifest."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from alibi_fairseq.dataprep.parallel import cores
from alibi_fairseq.results import manifest as manifests


def add_arguments(parser: argparse.ArgumentParser) -> None:
    corpora = parser.add_subparsers(dest="corpus", required=True, metavar="CORPUS")
    _text(corpora)
    _wikitext(corpora)
    _bookcorpus(corpora)
    _cc100(corpora)


def run(args: argparse.Namespace) -> int:
    try:
        manifest, done = args.prepare(args)
    except KeyboardInterrupt:
        print(
            "\nInterrupted. The same command goes on where this one stopped.",
            file=sys.stderr,
        )
        return 130
    _report(manifest, args, done)
    return 0


def _common(corpora, name: str, summary: str, prepare) -> argparse.ArgumentParser:
    parser = corpora.add_parser(name, help=summary, description=summary)
    parser.set_defaults(prepare=prepare)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("data") / name,
        metavar="FOLDER",
        help="where to work; the result is FOLDER/data-bin (default: %(default)s)",
    )
    parser.add_argument(
        "--workers", type=_positive, default=cores(), help="processes (default: all cores)"
    )
    return parser


def _text(corpora) -> None:
    def prepare(args):
        from alibi_fairseq.dataprep import own_text

        return own_text.prepare(
            args.sources,
            args.out,
            tokenizer=args.tokenizer,
            vocabulary=args.vocab_size,
            held_out=args.held_out,
            seed=args.seed,
            workers=args.workers,
        )

    parser = _common(corpora, "text", "text of your own: any files, documents held out", prepare)
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="text files of any name, compressed ones (.gz, .xz, .bz2, .zst), archives with *.txt, "
        "or folders with *.txt, *.md and *.rst",
    )
    parser.add_argument(
        "--tokenizer",
        choices=("sentencepiece", "words"),
        default="sentencepiece",
        help="a BPE trained on the training split, or words separated by white space "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--vocab-size",
        type=_positive,
        help="dictionary entries (default: all words; for sentencepiece one per 1,000 bytes of "
        "text, between 1,000 and 16,000)",
    )
    parser.add_argument(
        "--held-out",
        type=float,
        default=5.0,
        metavar="PERCENT",
        help="of the text for validation, and as much for test (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the split (default: %(default)s)")


def _wikitext(corpora) -> None:
    def prepare(args):
        from alibi_fairseq.dataprep import wikitext103
        from alibi_fairseq.dataprep.download import Mirror

        mirrors = [Mirror(url, "sha256", wikitext103.ZIP_SHA256) for url in args.mirror or []]
        return wikitext103.prepare(
            args.out,
            archive=args.archive,
            from_dir=args.from_dir,
            mirrors=mirrors,
            allow_other_text=args.allow_other_text,
            workers=args.workers,
        )

    parser = _common(corpora, "wikitext-103", "WikiText-103, word-level", prepare)
    parser.add_argument("--archive", metavar="FILE", help="wikitext-103-v1.zip, already here")
    parser.add_argument(
        "--from-dir", metavar="FOLDER", help="folder with wiki.{train,valid,test}.tokens"
    )
    parser.add_argument(
        "--mirror",
        action="append",
        metavar="URL",
        help="download wikitext-103-v1.zip from here instead (repeatable, tried in order)",
    )
    parser.add_argument(
        "--allow-other-text",
        action="store_true",
        help="accept another text in the same layout; the manifest then never says WikiText-103",
    )


def _bookcorpus(corpora) -> None:
    def prepare(args):
        from alibi_fairseq.dataprep import bookcorpus

        return bookcorpus.prepare(
            args.sources,
            args.out,
            seed=args.seed,
            held_out=args.held_out,
            split_list=args.split_list,
            vocabulary=args.vocab_size,
            wordpiece=args.wordpiece,
            allow_other_text=args.allow_other_text,
            workers=args.workers,
        )

    parser = _common(corpora, "bookcorpus", "books, sub-word level, whole books held out", prepare)
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="folder or archive (.tar.xz, .tar.gz, .zip …) with one .txt per book, or the "
        "file(s) of the Toronto BookCorpus with one sentence per line",
    )
    parser.add_argument(
        "--held-out",
        type=float,
        default=1.0,
        metavar="PERCENT",
        help="of the books for validation, and as much for test (default: %(default)s)",
    )
    parser.add_argument("--split-list", metavar="FILE", help="a splits.tsv, to split alike")
    parser.add_argument(
        "--vocab-size",
        type=_positive,
        default=29_000,
        help="dictionary entries of the sentencepiece BPE (default: %(default)s)",
    )
    parser.add_argument(
        "--wordpiece",
        metavar="VOCAB_TXT",
        help="use BERT's WordPiece with this vocab.txt instead of training sentencepiece",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the split (default: %(default)s)")
    parser.add_argument(
        "--allow-other-text",
        action="store_true",
        help="accept plain files that are not the Toronto BookCorpus; the manifest says so",
    )


def _cc100(corpora) -> None:
    def prepare(args):
        from alibi_fairseq.dataprep import cc100_roberta

        return cc100_roberta.prepare(
            args.sources,
            args.out,
            seed=args.seed,
            tokenizer=args.tokenizer,
            vocabulary=args.vocab_size,
            encoder_json=args.encoder_json,
            vocab_bpe=args.vocab_bpe,
            valid_tokens=args.valid_tokens,
            shards=args.shards,
            memory=args.memory,
            workers=args.workers,
        )

    parser = _common(
        corpora, "cc100-roberta", "any amount of text, shuffled and sharded, sub-words", prepare
    )
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="text files, .gz/.xz/.bz2/.zst shards, archives or folders of them; documents are "
        "separated by empty lines",
    )
    parser.add_argument(
        "--tokenizer",
        choices=("sentencepiece", "byte-level-bpe"),
        default="sentencepiece",
        help="trained on a sample of the text (default: %(default)s)",
    )
    parser.add_argument(
        "--vocab-size",
        type=_positive,
        default=50_000,
        help="dictionary entries of a trained tokeniser (default: %(default)s)",
    )
    parser.add_argument(
        "--encoder-json", metavar="FILE", help="GPT-2's encoder.json, instead of training"
    )
    parser.add_argument("--vocab-bpe", metavar="FILE", help="GPT-2's vocab.bpe, with the above")
    parser.add_argument(
        "--valid-tokens",
        type=_positive,
        default=649_000,
        help="size of the validation set (default: the paper's %(default)s)",
    )
    parser.add_argument(
        "--shards",
        type=_positive,
        help="folders the training text is spread over (default: one per 4 GB of text)",
    )
    parser.add_argument(
        "--memory",
        type=float,
        default=4.0,
        metavar="GB",
        help="bound for all processes together (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="of the shuffling (default: %(default)s)"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _report(manifest: dict, args: argparse.Namespace, done: bool) -> None:
    out = args.out
    if not done:
        print(
            f"{out}/data-bin is there already, made from the same text and settings; nothing to do."
        )
    for split, counts in manifest["splits"].items():
        print(f"  {split:5}  {counts['lines']:>13,} lines  {counts['tokens']:>15,} tokens")
    if manifest["identified_by"] is None and args.corpus != "text":
        print(f"This is {manifest['corpus']}, not the paper's text, and the manifest says so.")
    print(
        f"Dictionary: {manifest['dictionary']['entries']:,} entries. For training and "
        f"evaluation give fairseq:\n{manifests.data_argument(out / 'data-bin', manifest)}"
    )
