"""``alibi-fairseq merge-shards``: merge the results of all shards of a sweep."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shards", nargs="+", metavar="FILE", help="results of all shards")
    parser.add_argument("--out", required=True, metavar="FILE", help="file to write")


def run(args: argparse.Namespace) -> None:
    from ..evaluation.merge import merge_shards
    from ..results.schema import load_document, save_document
    from .eval import evaluation_table

    document = merge_shards([load_document(path) for path in args.shards])
    save_document(document, args.out)
    if document["kind"] == "evaluation":
        print(evaluation_table(document["cells"]))
    print(f"Merged {len(args.shards)} files. Results: {args.out}")
