"""The models that are compared, and one training step of each, as ``fairseq-train`` takes it.

- ``stock``: fairseq's own ``transformer_lm`` with sinusoidal positions;
- ``materialised``: ALiBi on it as the authors do it, a (B·H, T, T) mask with +m·j written into it;
- ``no bias``: our decoder without positions, the ideal of a dense causal kernel;
- any of our position methods, with the backend that ``auto`` takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import torch
from fairseq import criterions, models, options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import register_model
from fairseq.models.transformer import TransformerDecoder
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig
from fairseq.optim.adam import Adam

import alibi_fairseq.models  # noqa: F401  (registers the models)
from alibi_fairseq.positions import METHODS, alibi_slopes

from . import common


@dataclass(frozen=True)
class Shape:
    """Size of a model and of a training step."""

    name: str
    words: int
    flags: tuple[str, ...]
    stock_flags: tuple[str, ...]
    criterion: str
    tokens: int

    def batch(self, length: int) -> int:
        return max(1, self.tokens // length)

    def paper_passes(self, length: int) -> int:
        """Passes per update in the paper: one sequence each at L = 3072, one pass otherwise."""
        return self.batch(length) if length == 3072 else 1


_SMALL = (
    "--decoder-layers 4 --decoder-embed-dim 512 --decoder-ffn-embed-dim 2048 "
    "--decoder-attention-heads 8"
)
_WIDE = (
    "--decoder-layers 16 --decoder-embed-dim 1024 --decoder-ffn-embed-dim 4096 "
    "--decoder-attention-heads 8"
)
_WIKI = (
    f"{_WIDE} --dropout 0.3 --activation-dropout 0.1 "
    "--adaptive-input --adaptive-input-cutoff 20000,60000 --adaptive-softmax-cutoff 20000,60000 "
    "--adaptive-softmax-dropout 0.2 --tie-adaptive-weights --tie-adaptive-proj"
)

#: 4 layers, d=512, 8 heads, FFN 2048, 8 thousand words, 3,072 tokens per step.
SMALL = Shape(
    "4 layers, d=512",
    8192,
    tuple(_SMALL.split()),
    ("--share-decoder-input-output-embed", "--decoder-normalize-before"),
    "cross_entropy",
    3072,
)
#: The paper's WikiText-103 model, 9,216 tokens per step.
WIKI103 = Shape(
    "alibi_lm_wiki103",
    267_744,
    (*_WIKI.split(), "--no-decoder-final-norm"),
    ("--decoder-normalize-before",),
    "adaptive_loss",
    9216,
)

#: The paper's 16 layers of width 1024 with GPT-2's vocabulary and no adaptive softmax.
DENSE_16 = Shape(
    "16 layers, d=1024, 50,257 words",
    50_257,
    tuple(_WIDE.split()),
    (),
    "cross_entropy",
    9216,
)


def shape() -> Shape:
    """The size that is measured on this machine: the paper's on a GPU."""
    return WIKI103 if common.device().type == "cuda" else SMALL


class MaterialisedDecoder(TransformerDecoder):
    """fairseq's decoder with the authors' mask: built once, kept for all steps of a length."""

    _alibi_mask: torch.Tensor | None = None

    def buffered_future_mask(self, tensor):
        length, batch, _ = tensor.shape  # (T, B, C)
        heads = self.args_heads
        shape = (batch * heads, length, length)
        mask = self._alibi_mask
        if mask is None or mask.shape != shape or mask.device != tensor.device:
            causal = torch.full((length, length), -torch.inf).triu_(1)
            bias = alibi_slopes(heads).view(-1, 1, 1) * torch.arange(length)  # (H, 1, T)
            mask = (causal + bias).to(tensor).repeat(batch, 1, 1)  # (B·H, T, T)
            object.__setattr__(self, "_alibi_mask", mask)
        return mask


@register_model("benchmark_materialised", dataclass=TransformerLanguageModelConfig)
class MaterialisedModel(TransformerLanguageModel):
    """The authors' method on stock fairseq."""

    @classmethod
    def build_model(cls, args, task):
        args.no_token_positional_embeddings = True
        stock = super().build_model(args, task)
        embed = stock.decoder.embed_tokens
        decoder = MaterialisedDecoder(args, task.target_dictionary, embed, no_encoder_attn=True)
        decoder.args_heads = args.decoder_attention_heads
        return cls(decoder)


def build(name: str, shape: Shape, length: int, attention_dropout: float = 0.0):
    """A model with random weights for samples of ``length`` tokens, and its dictionary."""
    dictionary = Dictionary()
    for word in range(shape.words - len(dictionary)):
        dictionary.add_symbol(f"w{word}")
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    flags = ["data", "--task", "language_modeling", "--tokens-per-sample", str(length)]
    flags += [*shape.flags, "--attention-dropout", str(attention_dropout)]
    if name in ("stock", "materialised"):
        arch = {"stock": "transformer_lm", "materialised": "benchmark_materialised"}[name]
        flags += ["--arch", arch, *shape.stock_flags]
    else:
        method = "none" if name == "no bias" else name
        assert method in METHODS, name
        flags += ["--arch", "alibi_lm", "--position-method", method]
        if "--adaptive-input" in shape.flags:
            flags += ["--no-share-decoder-input-output-embed"]
    with redirect_stderr(StringIO()):  # hydra's advice on its own configuration
        parsed = options.parse_args_and_arch(options.get_training_parser(), flags)
        model = models.build_model(convert_namespace_to_omegaconf(parsed).model, task)
    return model, dictionary


def sample(dictionary: Dictionary, batch: int, length: int, where: torch.device) -> dict:
    """A batch of random tokens, as frequent as words are (Zipf's law)."""
    ranks = torch.arange(len(dictionary) - dictionary.nspecial, device=where)
    drawn = torch.multinomial(1 / (ranks + 2.7), batch * (length + 1), replacement=True)
    tokens = drawn.view(batch, length + 1) + dictionary.nspecial
    return {
        "net_input": {
            "src_tokens": tokens[:, :-1].contiguous(),
            "src_lengths": torch.full((batch,), length, device=where),
        },
        "target": tokens[:, 1:].contiguous(),
        "ntokens": batch * length,
    }


def training_step(
    model, dictionary, shape: Shape, length: int, passes: int = 1, optimiser: Callable = Adam
) -> Callable[[], float]:
    """Forward, loss, backward, clipping and update, on the device the model is on.

    The ``passes`` share the update's tokens (``--update-freq``).
    """
    parameter = next(model.parameters())
    task = SimpleNamespace(target_dictionary=dictionary)
    criterion = criterions.CRITERION_REGISTRY[shape.criterion](task, False)
    optimised = optimiser(model.parameters(), lr=1e-4)
    rows = shape.batch(length) // passes
    batches = [sample(dictionary, rows, length, parameter.device) for _ in range(passes)]
    model.train()

    def step() -> float:
        optimised.zero_grad()
        total, tokens = 0.0, 0
        for batch in batches:
            loss, size, _ = criterion(model, batch)
            loss.backward()
            total, tokens = total + loss.detach(), tokens + size
        for p in model.parameters():
            if p.grad is not None:
                p.grad.div_(tokens)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimised.step()
        return float(total)

    return step


def stepper(
    variant: str,
    shape: Shape,
    length: int,
    dropout: float = 0.0,
    passes: int = 1,
    optimiser: Callable = Adam,
):
    """A model on this machine's device, and a function that takes one training step."""
    where = common.device()
    model, dictionary = build(variant, shape, length, dropout)
    model.to(where, common.precision(where))
    return model, training_step(model, dictionary, shape, length, passes, optimiser)


def compare_steps(
    variants: dict[str, tuple], rounds: int, label: str, baseline: str, memory: bool = True, **case
) -> list[dict]:
    """One cell per variant: its training step timed in turns with those of the others, and its peak memory.

    ``variants`` are the arguments of :func:`stepper`, for one shape and length.
    """
    steps = {}
    for name, arguments in variants.items():
        torch.manual_seed(1)
        _, steps[name] = stepper(*arguments)
    _, shape, length, *_ = variants[baseline]
    batch = shape.batch(length)
    case = {"model": shape.name, "weights": "random", "length": length, "batch": batch, **case}
    cells = common.compare(steps, rounds, label, baseline, batch * length, **case)
    steps.clear()
    if memory:
        megabytes = {name: peak_memory(*arguments) for name, arguments in variants.items()}
        for cell in cells:
            mb = megabytes[cell["variant"]]
            cell["peak_memory_mb"] = round(mb, 1)
            cell["memory_ratio"] = round(mb / megabytes[baseline], 3)
    return cells


def peak_memory(*arguments) -> float:
    """MB at most in use during two training steps of a :func:`stepper`, with its optimiser."""
    if common.device().type == "cpu":
        return common.in_new_process(_peak_memory, *arguments)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return _peak_memory(*arguments)


def _peak_memory(*arguments) -> float:
    _, step = stepper(*arguments)
    step()
    step()
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e6
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024 / 1e6


def evaluation_step(variant: str, shape: Shape, length: int) -> Callable[[], None]:
    """Forward pass to the features, the part of evaluation that positions have a hand in."""
    where = common.device()
    model, dictionary = build(variant, shape, length)
    model.to(where, common.precision(where)).eval()
    batch = sample(dictionary, shape.batch(length), length, where)

    @torch.no_grad()
    def step() -> None:
        model.extract_features(batch["net_input"]["src_tokens"])

    return step
