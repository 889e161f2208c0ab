"""Decoding of sentencepiece's byte pieces."""

from __future__ import annotations

from itertools import groupby

from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE

from . import patch_method


@patch_method(SentencepieceBPE, "decode")
def decode_byte_pieces(decode, bpe, pieces: str) -> str:
    """Decode each sequence of byte pieces as UTF-8.

    fairseq prints characters outside the vocabulary as ``<0xC3><0xAF>``
    (facebookresearch/fairseq#4603).
    """
    model = bpe.sp
    text = ""

    def is_byte_piece(piece: str) -> bool:
        return model.is_byte(model.piece_to_id(piece))

    for is_byte, group in groupby(pieces.split(" "), is_byte_piece):
        if is_byte:
            text += model.decode_pieces(list(group))
        else:
            text += "".join(group)
    return decode(bpe, text)
