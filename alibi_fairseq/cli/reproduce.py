"""``alibi-fairseq reproduce``: a table or figure of the paper, from the text to the report."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import BadInput
from .slurm_options import add_slurm_arguments, hand_over, wants_slurm, words_of_a_job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ..reproduce.scales import SCALES

    parser.add_argument("name", metavar="TABLE|FIGURE|all", help="e.g. table5, figure1")
    parser.add_argument(
        "--corpus",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="text of wikitext-103, bookcorpus or cc100-roberta: a file or a folder (repeatable)",
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
        help="; ".join(f"{name}: {scale.worth}" for name, scale in SCALES.items()),
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print commands, tokens, V100 hours and disk"
    )
    parser.add_argument("--gpus", type=int, help="of this machine (default: all; smoke: none)")
    parser.add_argument("--cpu", type=int, metavar="N", help="N processes on the CPU instead")
    parser.add_argument(
        "--parallel",
        type=int,
        metavar="N",
        help="runs at a time on the CPU, with one thread each, or jobs of SLURM (default: 1; all)",
    )
    parser.add_argument(
        "--work-dir",
        type=Path,
        default=Path("runs/reproduce"),
        metavar="FOLDER",
        help="for everything, with a folder per scale (default: %(default)s)",
    )
    add_slurm_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Returns 75 if it was asked to stop; the same command resumes."""
    from ..reproduce import dry_run, plan, sources
    from ..reproduce.pipeline import Pipeline
    from ..reproduce.run import ReproductionWork, carry_out
    from ..reproduce.scales import SCALES
    from ..workflow import run_job, stages_of

    items = plan.find_items(args.name)
    runs = plan.runs_for(items)
    given = sources.parse(
        args.corpus, plan.corpora_of(runs), args.allow_other_text, complete=not args.dry_run
    )
    root, scale = args.work_dir / args.scale, SCALES[args.scale]
    pipeline = Pipeline(root, runs, given, scale, machine(args), args.parallel or 1)
    work = ReproductionWork(pipeline, items)
    if args.job:
        return run_job(work, args.job, "--work-dir")
    if wants_slurm(args):
        if args.gpus is None and args.cpu is None and args.scale != "smoke":
            raise BadInput("--slurm: what does each run get? Give --gpus N, or --cpu N processes.")
        stages = stages_of(work, words_of_a_job(args, "--parallel"), args.gpus or 0)
        return hand_over(args, stages, root, "--work-dir", at_once=args.parallel)
    if args.dry_run:
        print(dry_run.describe(pipeline))
        return 0
    return carry_out(pipeline, items, args.name)


def machine(args: argparse.Namespace):
    """The machine of one run; None for a dry run without --gpus or --cpu."""
    from ..launcher import Machine

    if args.cpu is not None and args.gpus is not None:
        raise BadInput("Choose one of --gpus and --cpu.")
    parallel = 1 if args.parallel is None else args.parallel
    if parallel < 1:
        raise BadInput("--parallel must be at least 1.")
    if args.cpu is not None:
        return Machine(args.cpu, cpu=True)
    if wants_slurm(args) or (args.job and not args.job.startswith("train")):
        return Machine(args.gpus or 1, cpu=args.gpus is None)  # trained elsewhere
    if args.gpus is None and (args.scale == "smoke" or parallel > 1):
        return Machine(1, cpu=True)
    if parallel > 1:
        raise BadInput("--parallel runs on the CPU; GPUs train one run after the other.")
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
