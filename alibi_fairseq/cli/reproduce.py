"""``alibi-fairseq reproduce``: a table or figure of the paper, from the text to the report."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import BadInput
from .experiment_options import (
    add_corpus_argument,
    add_experiment_arguments,
    corpus_paths,
    run_experiment,
    wants_slurm,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ..paper.recipe import SCALES

    parser.add_argument("name", metavar="TABLE|FIGURE|all", help="e.g. table5, figure1")
    add_corpus_argument(
        parser, "text of wikitext-103, bookcorpus or cc100-roberta: a file or a folder"
    )
    parser.add_argument(
        "--allow-other-text",
        action="store_true",
        help="accept texts that are not the paper's, under their own names",
    )
    parser.add_argument(
        "--scale",
        choices=list(SCALES),
        default="paper",
        help="; ".join(f"{name}: {scale.caveat}" for name, scale in SCALES.items()),
    )
    parser.add_argument("--gpus", type=int, help="of each run (default: all; smoke: none)")
    parser.add_argument("--cpu", type=int, metavar="N", help="N processes on the CPU instead")
    parser.add_argument(
        "--work-dir",
        type=Path,
        default=Path("runs/reproduce"),
        metavar="FOLDER",
        help="for everything, with a folder per scale (default: %(default)s)",
    )
    add_experiment_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Returns 75 if it was asked to stop; the same command resumes."""
    from ..experiments.paper_data import sources_of
    from ..experiments.paper_tables import PaperTables
    from ..paper import tables
    from ..paper.recipe import CORPORA, SCALES

    items = tables.find_items(args.name)
    trainings = tables.trainings_for(items)
    paths = corpus_paths(args.corpus, CORPORA)
    needed = list(dict.fromkeys(training.recipe.corpus for training in trainings))
    given = sources_of(paths, needed, args.allow_other_text, complete=not args.dry_run)
    folder, scale = args.work_dir / args.scale, SCALES[args.scale]
    experiment = PaperTables(folder, items, trainings, given, scale, machine(args), args.name)
    if wants_slurm(args) and args.gpus is None and args.cpu is None and args.scale != "smoke":
        raise BadInput("--slurm: what does each run get? Give --gpus N, or --cpu N processes.")
    return run_experiment(args, experiment)


def machine(args: argparse.Namespace):
    """The machine of one run; None for a dry run without --gpus or --cpu."""
    from ..experiments.torchrun import Machine

    if args.cpu is not None and args.gpus is not None:
        raise BadInput("Choose one of --gpus and --cpu.")
    if args.cpu is not None:
        return Machine(args.cpu, cpu=True)
    if wants_slurm(args) or (args.job and not args.job.startswith("train")):
        return Machine(args.gpus or 1, cpu=args.gpus is None)  # trained elsewhere
    if args.gpus is None and args.scale == "smoke":
        return Machine(1, cpu=True)
    if args.dry_run:
        return Machine(args.gpus) if args.gpus is not None else None
    import torch

    there = torch.cuda.device_count()
    if args.gpus is not None and args.gpus > there:
        raise BadInput(f"--gpus {args.gpus}, but there are {there} GPUs here; --cpu N needs none.")
    if args.scale == "mini" and args.gpus is None:
        return Machine(1, cpu=not there)
    if not there:
        raise BadInput("There is no GPU here; use --cpu N for N processes on the CPU.")
    return Machine(args.gpus or there)
