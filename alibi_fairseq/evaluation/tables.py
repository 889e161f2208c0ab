"""A sweep's results for the terminal."""

from __future__ import annotations

from pathlib import Path

#: Column title, key of the cell, how to write it.
_COLUMNS = [
    ("checkpoint", "checkpoint", lambda value: "/".join(Path(value).parts[-2:])),
    ("positions", "position_method", str),
    ("trained at", "train_length", str),
    ("split", "subset", str),
    ("L", "length", str),
    ("S", "stride", str),
    ("least ctx", "min_context", str),
    ("mean ctx", "mean_context", "{:.1f}".format),
    ("tokens", "tokens", "{:,}".format),
    ("bits/token", "loss_bits", "{:.4f}".format),
    ("perplexity", "perplexity", "{:.2f}".format),
    ("per word", "word_perplexity", "{:.2f}".format),
    ("bits/byte", "bits_per_byte", "{:.4f}".format),
    ("tokens/s", "tokens_per_second", "{:,.0f}".format),
    ("peak MB", "peak_memory_mb", "{:,.0f}".format),
]


def evaluation_table(cells: list[dict]) -> str:
    """One line per evaluation cell, columns aligned; columns that no cell has are left out."""
    columns = [column for column in _COLUMNS if any(column[1] in cell for cell in cells)]
    rows = [[title for title, _, _ in columns]]
    for cell in cells:
        rows.append([write(cell[key]) if key in cell else "–" for _, key, write in columns])
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
    lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths)) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
