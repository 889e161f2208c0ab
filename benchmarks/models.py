"""Models of the benchmarks, and their training steps as in ``fairseq-train``.

Variants:

- ``stock``: fairseq's ``transformer_lm`` with sinusoidal positions.
- ``materialised``: the authors' ALiBi in ``transformer_lm``, a (B·H, T, T) mask with +m·j added.
- ``no bias``: our decoder without positions, the ideal of a dense causal kernel.
- Any of our position methods, with the backend selected by ``auto``. With the suffix ``COMPILED``,
  the layers are compiled (``--compile-layers``). With the suffix ``MODERN``, they have the modern
  block, with two thirds of the feed-forward width, because SwiGLU has three matrices.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from types import SimpleNamespace

import torch
from fairseq import criterions, models, options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import register_model
from fairseq.models.transformer import TransformerDecoder
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig
from fairseq.optim.adam import Adam
from torch import nn

import alibi_fairseq.models  # noqa: F401  (registers the models)
from alibi_fairseq.peak_memory import PeakMemory
from alibi_fairseq.positions import METHODS, alibi_slopes

from . import common

#: Suffix of variants with ``--compile-layers``.
COMPILED = ", compiled layers"
#: Suffix of variants with the modern block.
MODERN = ", modern block"


@dataclass(frozen=True)
class Shape:
    """Size of a model and of a training step.

    Attributes:
        name: name in the results.
        words: size of the vocabulary.
        flags: model options of every variant.
        stock_flags: further options of ``stock`` and ``materialised``.
        criterion: registered name of the criterion.
        tokens: tokens per update.
    """

    name: str
    words: int
    flags: tuple[str, ...]
    stock_flags: tuple[str, ...]
    criterion: str
    tokens: int

    @property
    def modern_ffn_width(self) -> int:
        """Feed-forward width of the modern block: two thirds, rounded to a multiple of 32."""
        width = int(self.flags[self.flags.index("--decoder-ffn-embed-dim") + 1])
        return max(1, round(width * 2 / 3 / 32)) * 32

    def batch(self, length: int) -> int:
        """Return the number of sequences per update."""
        return max(1, self.tokens // length)

    def paper_passes(self, length: int) -> int:
        """Return the passes per update in the paper: one per sequence at L = 3072, else one."""
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

#: 4 layers, d=512, 8 heads, FFN 2048, 8,192 words, 3,072 tokens per step.
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
    (
        "--decoder-normalize-before",
        # transformer_lm's default is 512, whatever the width.
        *("--decoder-input-dim", "1024", "--decoder-output-dim", "1024"),
    ),
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


def default_shape() -> Shape:
    """Return the size to measure on this machine: the paper's on a GPU, a small one on the CPU."""
    return WIKI103 if common.on_gpu() else SMALL


class MaterializedDecoder(TransformerDecoder):
    """fairseq's decoder with the authors' mask, which is built once per shape."""

    _alibi_mask: torch.Tensor | None = None

    def buffered_future_mask(self, tensor):
        """Return the causal mask with ALiBi, (B·H, T, T)."""
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


@register_model("benchmark_materialized", dataclass=TransformerLanguageModelConfig)
class MaterializedModel(TransformerLanguageModel):
    """Stock fairseq with the authors' ALiBi mask."""

    @classmethod
    def build_model(cls, args, task):
        """Build a model without position embeddings."""
        args.no_token_positional_embeddings = True
        stock = super().build_model(args, task)
        embed = stock.decoder.embed_tokens
        decoder = MaterializedDecoder(args, task.target_dictionary, embed, no_encoder_attn=True)
        decoder.args_heads = args.decoder_attention_heads
        return cls(decoder)


@functools.cache
def make_dictionary(words: int) -> Dictionary:
    """Return a dictionary of this size, which all models share."""
    dictionary = Dictionary()
    for index in range(words - len(dictionary)):
        dictionary.add_symbol(f"w{index}")
    return dictionary


def build(
    name: str, shape: Shape, length: int, attention_dropout: float = 0.0
) -> tuple[nn.Module, Dictionary]:
    """Return a model with random weights for samples of ``length`` tokens, and its dictionary.

    The model is built on this machine's device, with its usual precision.
    """
    dictionary = make_dictionary(shape.words)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    flags = ["data", "--task", "language_modeling", "--tokens-per-sample", str(length)]
    flags += [*shape.flags, "--attention-dropout", str(attention_dropout)]
    stock_architectures = {"stock": "transformer_lm", "materialised": "benchmark_materialized"}
    if name in stock_architectures:
        flags += ["--arch", stock_architectures[name], *shape.stock_flags]
    else:
        method = name.removesuffix(COMPILED).removesuffix(MODERN)
        method = "none" if method == "no bias" else method
        assert method in METHODS, name
        architecture = "alibi_lm"
        if name.endswith(COMPILED):
            require_compilation()
            flags += ["--compile-layers"]
        if name.endswith(MODERN):
            architecture = "alibi_lm_modern"
            flags += ["--decoder-ffn-embed-dim", str(shape.modern_ffn_width)]
        flags += ["--arch", architecture, "--position-method", method]
        if "--adaptive-input" in shape.flags:
            flags += ["--no-share-decoder-input-output-embed"]
    device = common.device()
    with redirect_stderr(StringIO()):  # hydra's advice on its own configuration
        parsed = options.parse_args_and_arch(options.get_training_parser(), flags)
        config = convert_namespace_to_omegaconf(parsed).model
    with device:  # initializing weights on the CPU and moving them takes seconds
        model = models.build_model(config, task)
    return model.to(device, common.precision(device)), dictionary


def require_compilation() -> None:
    """Make it an error that PyTorch computes a layer without compiling it.

    Beyond ``recompile_limit``, PyTorch only logs a warning. FlexAttention needs no such setting,
    because its graphs are complete (``fullgraph``).
    """
    import torch._dynamo  # takes as long as all other imports together

    torch._dynamo.config.fail_on_recompile_limit_hit = True


def make_sample(dictionary: Dictionary, batch: int, length: int, device: torch.device) -> dict:
    """Return a fairseq batch of random tokens with word frequencies as in Zipf's law."""
    ranks = torch.arange(len(dictionary) - dictionary.nspecial, device=device)
    words = torch.multinomial(1 / (ranks + 2.7), batch * (length + 1), replacement=True)
    tokens = words.view(batch, length + 1) + dictionary.nspecial
    return {
        "net_input": {
            "src_tokens": tokens[:, :-1].contiguous(),
            "src_lengths": torch.full((batch,), length, device=device),
        },
        "target": tokens[:, 1:].contiguous(),
        "ntokens": batch * length,
    }


def make_training_step(
    model, dictionary, shape: Shape, length: int, passes: int = 1, make_optimizer: Callable = Adam
) -> Callable[[], float]:
    """Return a function that runs forward, loss, backward, clipping, and update.

    Args:
        model: model on the device to measure.
        dictionary: its dictionary.
        shape: its size.
        length: training length in tokens.
        passes: forward and backward passes that share the tokens of an update
            (``--update-freq``).
        make_optimizer: class of the optimizer.
    """
    parameter = next(model.parameters())
    task = SimpleNamespace(target_dictionary=dictionary)
    criterion = criterions.CRITERION_REGISTRY[shape.criterion](task, False)
    optimizer = make_optimizer(model.parameters(), lr=1e-4)
    rows = shape.batch(length) // passes
    batches = [make_sample(dictionary, rows, length, parameter.device) for _ in range(passes)]
    model.train()

    def step() -> float:
        optimizer.zero_grad()
        total = 0.0
        tokens = 0
        for batch in batches:
            loss, size, _ = criterion(model, batch)
            loss.backward()
            total += loss.detach()
            tokens += size
        for p in model.parameters():
            if p.grad is not None:
                p.grad.div_(tokens)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return float(total)

    return step


@dataclass(frozen=True)
class StepConfig:
    """Model and training step to measure.

    Attributes:
        variant: variant of the model.
        shape: its size.
        length: training length in tokens.
        dropout: attention dropout.
        passes: forward and backward passes that share the tokens of an update.
        make_optimizer: class of the optimizer.
    """

    variant: str
    shape: Shape
    length: int
    dropout: float = 0.0
    passes: int = 1
    make_optimizer: Callable = Adam


@dataclass(frozen=True)
class TrainingStep:
    """Training step of one model.

    Attributes:
        config: model and step.
        model: the model.
        dictionary: its dictionary.
        run: function that runs the step.
        peak_memory: peak memory of two steps in MB, including the optimizer; None: not measured.
    """

    config: StepConfig
    model: nn.Module
    dictionary: Dictionary
    run: Callable[[], float]
    peak_memory: float | None = None


def build_training_step(config: StepConfig) -> TrainingStep:
    """Build a model on this machine's device, and its training step."""
    model, dictionary = build(config.variant, config.shape, config.length, config.dropout)
    run = make_training_step(
        model, dictionary, config.shape, config.length, config.passes, config.make_optimizer
    )
    return TrainingStep(config, model, dictionary, run)


def build_training_steps(
    variants: dict[str, StepConfig], memory: bool = True
) -> dict[str, TrainingStep]:
    """Build each model once, and measure its peak memory.

    Args:
        variants: models and steps by name.
        memory: True to measure peak memory.
    """
    steps = {}
    for name, config in variants.items():
        torch.manual_seed(1)
        if memory and common.device().type == "cuda":
            steps[name] = _build_with_peak_on_gpu(config)
            continue
        step = build_training_step(config)
        steps[name] = replace(step, peak_memory=peak_memory(config)) if memory else step
    return steps


def _build_with_peak_on_gpu(config: StepConfig) -> TrainingStep:
    """Build a model and its step, and run two steps to measure their peak memory.

    Models that were built before keep their memory, which is not counted.
    """
    gc.collect()  # decoders are part of reference cycles
    _allocate_workspaces()
    resident = torch.cuda.memory_allocated() / 1e6
    step = build_training_step(config)
    peak = PeakMemory(common.device())
    step.run()
    step.run()
    return replace(step, peak_memory=peak.mb() - resident)


def _allocate_workspaces() -> None:
    """Let cuBLAS allocate its workspaces, which the first model would otherwise seem to need."""
    device = common.device()
    x = torch.ones(8, 8, device=device, dtype=common.precision(device), requires_grad=True)
    (x @ x).sum().backward()  # the backward pass has a separate one


def peak_memory(config: StepConfig) -> float:
    """Return the peak memory of two training steps on the CPU, in MB, including the optimizer."""
    return common.run_in_new_process(_peak_memory, config)


def _peak_memory(config: StepConfig) -> float:
    peak = PeakMemory(common.device())
    step = build_training_step(config)
    step.run()
    step.run()
    return peak.mb()


def compare_steps(
    steps: dict[str, TrainingStep], rounds: int, label: str, baseline: str, **case
) -> list[dict]:
    """Measure training steps in alternation and return one result record per variant.

    Args:
        steps: steps by name, with one size and length for all.
        rounds: number of timed steps per variant.
        label: name of the task in the results.
        baseline: variant that the ratios refer to.
        case: further keys of every record.
    """
    config = steps[baseline].config
    batch = config.shape.batch(config.length)
    records = common.compare(
        {name: step.run for name, step in steps.items()},
        rounds,
        label,
        baseline,
        batch * config.length,
        model=config.shape.name,
        weights="random",
        length=config.length,
        batch=batch,
        **case,
    )
    for record in records:
        peak = steps[record["variant"]].peak_memory
        baseline_peak = steps[baseline].peak_memory
        if peak is not None and baseline_peak is not None:
            record["peak_memory_mb"] = round(peak, 1)
            record["memory_ratio"] = round(peak / baseline_peak, 3)
    return records


def make_evaluation_step(step: TrainingStep) -> Callable[[], None]:
    """Return a function that computes the features, the part that depends on the positions.

    The model is in evaluation mode from now on.
    """
    config = step.config
    batch = make_sample(
        step.dictionary, config.shape.batch(config.length), config.length, common.device()
    )
    step.model.eval()

    @torch.no_grad()
    def evaluate() -> None:
        step.model.extract_features(batch["net_input"]["src_tokens"])

    return evaluate
