"""Decoding of sentencepiece's byte pieces."""

from __future__ import annotations

from itertools import groupby

from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE

from . import patch_method


@patch_method(SentencepieceBPE, "decode")
def decode_byte_pieces(decode, bpe, pieces: str) -> str:
    """fairseq prints characters outside the vocabulary as ``<0xC3><0xAF>``
    (facebookresearch/fairseq#4603). Decode each run of byte pieces as UTF-8.
    """
    model = bpe.sp
    text = ""
    for is_byte, run in groupby(pieces.split(" "), lambda x: model.is_byte(model.piece_to_id(x))):
        if is_byte:
            text += model.decode_pieces(list(run))
        else:
            text += "".join(run)
    return decode(bpe, text)
