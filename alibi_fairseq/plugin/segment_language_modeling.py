"""Language modeling over consecutive segments, for position methods with a memory.

Every row of a batch reads one contiguous part of the corpus from batch to batch, so the states of
one segment are the memory of the next. Every token is predicted exactly once: the input of a
segment starts one token before its targets. Models without a memory can be trained as well and then
see the text in the same order.
"""

from __future__ import annotations

import os

from fairseq import utils
from fairseq.data import data_utils
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask

from ..errors import UserInputError
from .segment_dataset import SegmentDataset, SegmentIterator, SegmentPlan, TokenStream

#: Options of ``language_modeling`` that would reorder the text or change the targets, and their
#: required values.
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

    The number of rows per process is ``--batch-size``, or as many as ``--max-tokens`` allows. All
    processes have the same number of batches, so fairseq never needs a dummy batch to keep them in
    step. If it creates one, that batch has no memory. With ``--update-freq`` n, an update reads the
    next n segments of the same rows in order. The last segment is shorter, and rows that end one
    token earlier than others are padded. Generation works as in ``language_modeling`` and uses no
    memory.
    """

    #: Consecutive batches are consecutive in the text, so a memory can be carried over.
    is_sequential = True

    @classmethod
    def setup_task(cls, args, **kwargs):
        for option, value in REQUIRED_VALUES.items():
            if str(getattr(args, option)) != value:
                raise UserInputError(
                    f"--task segment_language_modeling reads the corpus as one text. Remove "
                    f"--{option.replace('_', '-')}."
                )
        return super().setup_task(args, **kwargs)

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs):
        """Load a split as one stream of tokens."""
        paths = utils.split_paths(self.args.data)
        path = os.path.join(paths[(epoch - 1) % len(paths)], split)
        lines = data_utils.load_indexed_dataset(
            path, self.dictionary, self.args.dataset_impl, combine=combine
        )
        if lines is None:
            raise FileNotFoundError(f"Dataset not found: {split} ({path})")
        self.datasets[split] = TokenStream(lines, self.dictionary.pad(), self.dictionary.eos())

    def get_batch_iterator(self, dataset, **options):
        """Iterate over a split in text order; over sentences to score or continue as in fairseq."""
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
        """Iterate over the batches of one process in text order, with their own memory."""
        rows = rows_per_process(
            self.args.tokens_per_sample, max_tokens, max_sentences, required_batch_size_multiple
        )
        rows = min(rows, len(dataset) // num_shards)
        plan = SegmentPlan(len(dataset), rows * num_shards, self.args.tokens_per_sample)
        own_rows = range(rows * shard_id, rows * (shard_id + 1))
        return SegmentIterator(
            SegmentDataset(dataset, plan, own_rows),
            epoch=epoch,
            num_workers=num_workers,
            buffer_size=data_buffer_size,
        )

    def eval_lm_dataloader(self, dataset, batch_size=None, context_window=0, **kwargs):
        """Iterate for ``fairseq-eval-lm``; context comes from the memory and not from a window."""
        if context_window > 0:
            raise UserInputError(
                "--task segment_language_modeling takes context from the memory. Remove "
                "--context-window."
            )
        batches = self.get_batch_iterator(dataset, max_sentences=batch_size, **kwargs)
        return batches.next_epoch_itr()


def rows_per_process(
    length: int, max_tokens: int | None, max_sentences: int | None, multiple: int
) -> int:
    """Return the number of rows that fit in a batch, rounded down to a multiple as in fairseq.

    Args:
        length: tokens per row.
    """
    if max_tokens is not None and max_tokens < length:
        raise UserInputError(
            f"--max-tokens {max_tokens} is less than one row of --tokens-per-sample {length}. "
            "Increase the former or decrease the latter."
        )
    limits = []
    if max_sentences:
        limits.append(max_sentences)
    if max_tokens:
        limits.append(max_tokens // length)
    rows = min(limits)
    if rows <= multiple:
        return rows
    return rows - rows % multiple
