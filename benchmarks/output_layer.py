"""The step around attention beside fairseq's: ``python -m benchmarks.output_layer``.

The same model with the same weights, in turns in one process: with fairseq's loss, with our chunked
one, and with the chunked one and an option more: ``--optimizer fused_adam``, ``--compile``, or q, k and v
of every layer from one matrix product, which the models do not offer. Peak memory is that of one
model in a process of its own (on a GPU: of its own allocations).

On the CPU: 3 layers of width 192 with an adaptive softmax over 120,180 words, 8,192 tokens per step,
and the small model of ``benchmarks.train`` with a softmax over 8,192 words, fp32. On a GPU: the
paper's WikiText-103 model and a softmax over 50,257 words, 9,216 tokens per step, bf16.
"""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from fairseq.optim.adam import Adam

from . import common, models

_NARROW = (
    "--decoder-layers 3 --decoder-embed-dim 192 --decoder-ffn-embed-dim 768 "
    "--decoder-attention-heads 8 --adaptive-softmax-cutoff 2000,10000 "
    "--adaptive-input --adaptive-input-cutoff 2000,10000 --tie-adaptive-weights"
)
#: A small model with the large vocabulary of natural text.
LARGE_VOCABULARY = models.Shape(
    "3 layers, d=192, 120,180 words",
    120_180,
    tuple(_NARROW.split()),
    (),
    "adaptive_loss",
    8192,
)
#: The paper's 16 layers of width 1024 with GPT-2's vocabulary and no adaptive softmax.
DENSE_16 = models.Shape(
    "16 layers, d=1024, 50,257 words",
    50_257,
    tuple(
        [
            "--decoder-layers",
            "16",
            "--decoder-embed-dim",
            "1024",
            "--decoder-ffn-embed-dim",
            "4096",
            "--decoder-attention-heads",
            "8",
        ]
    ),
    (),
    "cross_entropy",
    9216,
)
LENGTH = 512
#: What the chunked losses are measured with besides.
OPTIONS = ("--optimizer fused_adam", "--compile", "one product for q, k, v")


def main() -> None:
    parser = common.parser(__doc__, "output_layer")
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory")
    parser.add_argument("--softmax", choices=["adaptive", "plain"], help="default: both models")
    parser.add_argument(
        "--peak-memory-of",
        nargs=2,
        metavar=("SHAPE", "VARIANT"),
        help="print the peak memory of two training steps in MB and stop",
    )
    args = parser.parse_args()
    common.prepare(args)
    if args.peak_memory_of:
        print(peak_memory(*args.peak_memory_of))
        return
    began = time.time()
    chosen = [s for s in shapes() if args.softmax in (None, kind_of(s))]
    cells = [cell for shape in chosen for cell in measure(args, shape)]
    common.save(args, "output_layer", cells, began)


def shapes() -> list[models.Shape]:
    if common.device().type == "cuda":
        return [models.WIKI103, DENSE_16]
    return [LARGE_VOCABULARY, models.SMALL]


def kind_of(shape: models.Shape) -> str:
    return "adaptive" if shape.criterion == "adaptive_loss" else "plain"


def variants(shape: models.Shape) -> list[str]:
    """fairseq's criterion, ours, and ours with each option."""
    chunked = f"chunked_{shape.criterion}"
    return [shape.criterion, chunked, *(f"{chunked}, {option}" for option in OPTIONS)]


def stepper(shape: models.Shape, variant: str):
    """The model and a function that takes one training step."""
    where = common.device()
    torch.manual_seed(1)
    criterion, _, option = variant.partition(", ")
    flags = (*shape.flags, option) if option == "--compile" else shape.flags
    varied = replace(shape, criterion=criterion, flags=flags)
    model, dictionary = models.build("alibi", varied, LENGTH)
    model.to(where, common.precision(where))
    if option.startswith("one product"):
        join_projections(model)
    optimiser = fused_adam if "fused_adam" in option else Adam
    step = models.training_step(model, dictionary, varied, LENGTH, optimiser=optimiser)
    return model, step


def fused_adam(parameters, lr: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr, fused=True)


def join_projections(model) -> None:
    """Compute q, k and v of each layer in one product; the parameters stay three, by their names."""
    for layer in model.decoder.layers:
        attention, thirds = layer.self_attn, []
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)

        def joined(x, projections=projections, thirds=thirds):
            weight = torch.cat([p.weight for p in projections])
            bias = torch.cat([p.bias for p in projections])
            q, *thirds[:] = torch.nn.functional.linear(x, weight, bias).chunk(3, dim=-1)
            return q

        attention.q_proj.forward = joined
        for projection in projections[1:]:
            projection.forward = lambda x, thirds=thirds: thirds.pop(0)


def peak_memory(name: str, variant: str) -> float:
    """MB at most in use during two training steps of a shape, with the model and its optimiser."""
    shape = next(shape for shape in shapes() if shape.name == name)
    _, step = stepper(shape, variant)
    step()
    step()
    return common.peak_memory_mb(common.device())


def measure(args, shape: models.Shape) -> list[dict]:
    """One cell per variant."""
    steps = {name: stepper(shape, name)[1] for name in variants(shape)}
    times = common.seconds_in_turns(steps, args.rounds, shape.name)
    del steps
    batch = shape.batch(LENGTH)
    case = {"model": shape.name, "weights": "random", "length": LENGTH, "batch": batch}
    cells = common.cells_of(times, "training step", shape.criterion, batch * LENGTH, **case)
    if args.no_memory:
        return cells
    for cell in cells:
        own = (shape.name, cell["variant"])
        memory = common.peak_memory_of(peak_memory, "benchmarks.output_layer", *own)
        cell["peak_memory_mb"] = round(memory, 1)
        cell["memory_ratio"] = round(cell["peak_memory_mb"] / cells[0]["peak_memory_mb"], 3)
    return cells


if __name__ == "__main__":
    main()
