"""Ratios to sinusoidal embeddings in the paper's Table 1."""

from __future__ import annotations

from alibi_fairseq.paper import published

BASELINE = "sinusoidal"
#: Key of each ratio, by the column of the table.
_KEYS = {
    "train_words_per_second": "paper_ratio",
    "eval_words_per_second": "paper_evaluation_ratio",
    "train_memory_gb": "paper_memory_ratio",
}


def paper_ratios() -> dict[tuple[str, int], dict[str, float]]:
    """Return the ratios of training speed, evaluation speed, and memory, by method and length."""
    rows = {(row["position_method"], row["train_length"]): row for row in published.rows("table01")}
    ratios = {}
    for (method, length), row in rows.items():
        baseline = rows[BASELINE, length]
        ratios[method, length] = {
            key: row[column] / baseline[column] for column, key in _KEYS.items()
        }
    return ratios
