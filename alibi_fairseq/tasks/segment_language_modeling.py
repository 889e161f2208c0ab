"""Language modelling over consecutive segments, for position methods with a memory.

Every row of a batch reads one contiguous stretch of the corpus from batch to batch, so the states
of one segment are the past of the next. Every token is predicted exactly once: the input of a
segment starts one token before its targets. It trains models without a memory as well, which then
see the text in the same order.
"""

from __future__ import annotations

import os

from fairseq import utils
from fairseq.data import data_utils
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask

from ..errors import BadInput
from .segment_dataset import SegmentDataset, SegmentIterator, TokenStream
from .stretches import Stretches

#: Options of ``language_modeling`` that would break the text up or predict something else.
REQUIRED_VALUES = {
    "sample_break_mode": "none",
    "shorten_method": "none",
    "add_bos_token": "False",
    "self_target": "False",
    "past_target": "False",
    "pad_to_fixed_length": "False",
    "pad_to_fixed_bsz": "False",
}


@register_task("segment_language_modeling", dataclass=LanguageModelingConfig)
class SegmentLanguageModelingTask(LanguageModelingTask):
    """Sequential batches of ``--tokens-per-sample`` tokens, options as for ``language_modeling``.

    Rows per process are ``--batch-size``, or as many as ``--max-tokens`` holds. All processes have
    the same number of batches, so fairseq never needs a dummy batch to keep them in step; where it
    makes one, it carries no memory. With ``--update-freq`` n an update reads the next n segments of
    the same rows one after the other. The last segment is shorter; rows that end a token before
    others are padded there. Generation works as with ``language_modeling`` and uses no memory.
    """

    #: Batches follow each other in the text, so a memory may be carried from one to the next.
    is_sequential = True

    @classmethod
    def setup_task(cls, args, **kwargs):
        for option, value in REQUIRED_VALUES.items():
            if str(getattr(args, option)) != value:
                raise BadInput(
                    f"--task segment_language_modeling reads the corpus as one text; drop "
                    f"--{option.replace('_', '-')}."
                )
        return super().setup_task(args, **kwargs)

    def __init__(self, args, *other, **kwargs):
        super().__init__(args, *other, **kwargs)
        self._training_memory = None

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs):
        """Load a split as one row of tokens."""
        paths = utils.split_paths(self.args.data)
        path = os.path.join(paths[(epoch - 1) % len(paths)], split)
        lines = data_utils.load_indexed_dataset(
            path, self.dictionary, self.args.dataset_impl, combine=combine
        )
        if lines is None:
            raise FileNotFoundError(f"Dataset not found: {split} ({path})")
        self.datasets[split] = TokenStream(lines, self.dictionary.pad(), self.dictionary.eos())

    def get_batch_iterator(self, dataset, **options):
        """Batches of a split in the order of the text; sentences to score or continue as ever."""
        if isinstance(dataset, TokenStream):
            return self._segments(dataset, **options)
        return super().get_batch_iterator(dataset, **options)

    def _segments(
        self,
        dataset,
        max_tokens=None,
        max_sentences=None,
        required_batch_size_multiple=1,
        num_shards=1,
        shard_id=0,
        num_workers=0,
        epoch=1,
        data_buffer_size=0,
        **unused,
    ):
        """Batches of one process in the order of the text, with a memory of their own."""
        rows = rows_per_process(
            self.args.tokens_per_sample, max_tokens, max_sentences, required_batch_size_multiple
        )
        if len(dataset) < num_shards:
            raise BadInput(
                f"{len(dataset)} tokens cannot be shared among {num_shards} processes; use a "
                "larger corpus or fewer processes."
            )
        rows = min(rows, len(dataset) // num_shards)
        plan = Stretches(len(dataset), rows * num_shards, self.args.tokens_per_sample)
        own_rows = range(rows * shard_id, rows * (shard_id + 1))
        return SegmentIterator(
            SegmentDataset(dataset, plan, own_rows),
            epoch=epoch,
            num_workers=num_workers,
            buffer_size=data_buffer_size,
        )

    def eval_lm_dataloader(self, dataset, batch_size=None, context_window=0, **kwargs):
        """For ``fairseq-eval-lm``; context comes from the memory and not from a window."""
        if context_window > 0:
            raise BadInput(
                "--task segment_language_modeling takes context from the memory; drop "
                "--context-window."
            )
        batches = self.get_batch_iterator(dataset, max_sentences=batch_size, **kwargs)
        return batches.next_epoch_itr()

    def train_step(self, sample, *args, **kwargs):
        """As fairseq's; notes whose memory is to be saved."""
        if "segment" in sample["net_input"]:
            self._training_memory = sample["net_input"]["segment"].memory
        return super().train_step(sample, *args, **kwargs)

    def begin_valid_epoch(self, epoch, model):
        """All processes pass here before a checkpoint, only the first one where it is written."""
        if self._training_memory is not None:
            self._training_memory.gather()


def rows_per_process(
    length: int, max_tokens: int | None, max_sentences: int | None, multiple: int
) -> int:
    """Rows of a batch: all that fit, rounded down to a multiple as fairseq does.

    Args:
        length: tokens per row.
        max_tokens: limit of tokens per batch, or None.
        max_sentences: limit of rows per batch, or None.
        multiple: rows are a multiple of it, or fewer than it.
    """
    if max_tokens is not None and max_tokens < length:
        raise BadInput(
            f"--max-tokens {max_tokens} does not hold one row of --tokens-per-sample {length}; "
            "raise the one or lower the other."
        )
    limits = [max_sentences] if max_sentences else []
    limits += [max_tokens // length] if max_tokens else []
    rows = min(limits)
    return rows - rows % multiple if rows > multiple else rows
