"""EleutherAI's lm-evaluation-harness on a fairseq checkpoint, with this project's windows.

``python -m alibi_fairseq.harness …`` is the harness's own command with one more model::

    python -m alibi_fairseq.harness run --model alibi_fairseq --tasks hellaswag \\
        --model_args path=checkpoint_best.pt,data=data-bin,length=1024

Shapes: T inputs, S scored tokens, V vocabulary.
"""

from __future__ import annotations

from pathlib import Path

import torch
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from torch import Tensor
from tqdm import tqdm

from .errors import BadInput
from .evaluation.batches import make_batches
from .evaluation.checkpoint import load_checkpoint
from .evaluation.data import load_dictionary
from .evaluation.measure import Stream, measure
from .evaluation.windows import check_window, plan_windows, share_start
from .huggingface.tokenizer import TokenizerFiles, build_tokenizer, find_files


@register_model("alibi_fairseq")
class FairseqLM(TemplateLM):
    """A checkpoint as the harness asks for one.

    Args:
        path: fairseq checkpoint.
        data: folder with its ``dict.txt``.
        length: most tokens L that a prediction sees; the training length if not given.
        stride: tokens S that a window scores in rolling perplexity; L if not given.
        batch_size: windows of rolling perplexity at once.
        device: ``cpu`` or ``cuda``.
        precision: ``fp32``, ``bf16`` or ``fp16``.
        sentencepiece_model, gpt2_encoder_json, gpt2_vocab_bpe, wordpiece_vocab: the tokeniser,
            where it is not beside the data.
    """

    backend = "causal"

    def __init__(
        self,
        path: str,
        data: str,
        length: int | None = None,
        stride: int | None = None,
        batch_size: int | str = 1,
        device: str | None = None,
        precision: str = "fp32",
        sentencepiece_model: str | None = None,
        gpt2_encoder_json: str | None = None,
        gpt2_vocab_bpe: str | None = None,
        wordpiece_vocab: str | None = None,
        **_: object,
    ):
        super().__init__()
        folder = Path(data)
        files = TokenizerFiles(
            sentencepiece=_path(sentencepiece_model),
            encoder=_path(gpt2_encoder_json),
            merges=_path(gpt2_vocab_bpe),
            wordpiece=_path(wordpiece_vocab),
        )
        self._dictionary = load_dictionary(folder)
        self._tokenizer = build_tokenizer(folder, find_files(folder, self._dictionary, files))
        self._device = _device(device)
        self._loaded = load_checkpoint(
            Path(path), folder, self._dictionary, self._device, precision
        )
        self._decoder = self._loaded.decoder
        self._length = int(self._loaded.facts["train_length"] if length is None else length)
        self._stride = int(self._length if stride is None else stride)
        check_window(self._length, self._stride)
        # A memory is handed from window to window, so they cannot share a batch.
        self._batch_size = 1 if self._loaded.memory_length else int(batch_size)

    @property
    def eot_token_id(self) -> int:
        return self._dictionary.eos()

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_) -> list[int]:
        return self._tokenizer.encode(string, add_special_tokens=False)

    def loglikelihood_rolling(self, requests, disable_tqdm: bool = False) -> list[float]:
        """ln p of whole texts, each for itself, by the windows of ``alibi-fairseq eval``."""
        results = []
        for (text,) in tqdm([request.args for request in requests], disable=disable_tqdm):
            tokens = torch.tensor(self.tok_encode(text), device=self._device)
            if not len(tokens):
                results.append(0.0)
                continue
            first = torch.tensor([self.eot_token_id], device=self._device)
            stream = Stream(torch.cat([first, tokens[:-1]]), tokens, "text")
            windows = share_start(plan_windows(len(tokens), self._length, self._stride))
            batches = make_batches(windows, self._batch_size)
            (total,) = measure(self._loaded.scorer(), stream, batches, [0, self._length])
            results.append(-float(total.nats))
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), results[-1])
        return results

    @torch.no_grad()
    def _loglikelihood_tokens(self, requests, disable_tqdm: bool = False, **_):
        results = []
        for pair, context, continuation in tqdm(requests, disable=disable_tqdm):
            tokens, score, greedy = context + continuation, 0.0, True
            # One window, unless the continuation is longer; each scores what fits into it.
            for begin in range(len(context), len(tokens), self._length):
                end = min(begin + self._length, len(tokens))
                targets = torch.tensor(tokens[begin:end], device=self._device)  # (S,)
                inputs = tokens[max(0, end - 1 - self._length) : end - 1]
                log_p = self._log_probabilities(inputs)[-len(targets) :]  # (S, V)
                score += log_p.gather(1, targets[:, None]).double().sum().item()
                greedy &= bool((log_p.argmax(1) == targets).all())
            results.append((score, greedy))
            if pair is not None:
                self.cache_hook.add_partial("loglikelihood", pair, results[-1])
        return results

    @torch.no_grad()
    def generate_until(self, requests, disable_tqdm: bool = False) -> list[str]:
        """Greedy continuations, each up to one of its stop strings."""
        results = []
        for context, options in tqdm([r.args for r in requests], disable=disable_tqdm):
            until = options.get("until") or []
            until = [until] if isinstance(until, str) else until
            tokens = self.tok_encode(context) or [self.eot_token_id]
            given, text = len(tokens), ""
            for _ in range(options.get("max_gen_toks", 256)):
                log_p = self._log_probabilities(tokens[-self._length :])[-1]
                tokens.append(int(log_p.argmax()))
                text = self._tokenizer.decode(tokens[given:])
                if any(stop in text for stop in until):
                    break
            results.append(min((text.split(stop)[0] for stop in until), key=len, default=text))
            self.cache_hook.add_partial("generate_until", (context, options), results[-1])
        return results

    def _log_probabilities(self, inputs: list[int]) -> Tensor:
        """(T, V) in at least fp32, after each input."""
        output = self._decoder(torch.tensor([inputs], device=self._device))
        return self._decoder.get_normalized_probs(output, log_probs=True)[0]


def _device(name: str | None) -> torch.device:
    """The device of that name; the CPU for cuda, the harness's own default, where there is none."""
    if name is None or (name.startswith("cuda") and not torch.cuda.is_available()):
        return torch.device("cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise BadInput(f"device={name}: there is no such device; use cpu or cuda.") from error


def _path(name: str | None) -> Path | None:
    return Path(name) if name else None


def main() -> None:
    """The harness's command; importing this module has made the model known to it."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
