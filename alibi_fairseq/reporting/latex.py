"""LaTeX tables with the rules of the package booktabs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import markdown
from .table import Table

HEADER = "% Written by `alibi-fairseq {command}`. Requires \\usepackage{{booktabs}}.\n"
#: LaTeX of each character that LaTeX interprets or that is missing from LaTeX's default fonts.
ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # At the start of a row, these would be read as arguments of the line break above.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "–": "--",
    "−": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≠": r"$\neq$",
    "≤": r"$\leq$",
    "→": r"$\rightarrow$",
    "↓": r"$\downarrow$",
    "†": r"$\dagger$",
}
_TRANSLATION = str.maketrans(ESCAPES)


def literal(text: str) -> str:
    """Escape text so that LaTeX interprets none of it."""
    one_line = " ".join(str(text).split())
    # Two hyphens in a row would become a dash, for example in the name of an option.
    parts = []
    for part in one_line.split("--"):
        parts.append(part.translate(_TRANSLATION))
    return "-{}-".join(parts)


def _row(cells: Sequence[str]) -> str:
    """Format a row of a ``tabular`` environment."""
    return " & ".join(literal(cell) for cell in cells) + " \\\\\n"


def tabular(table: Table) -> str:
    """Format a table as a ``tabular`` environment, without caption and notes."""
    alignment = "l" * table.left + "r" * (len(table.headers) - table.left)
    rows = "".join(_row(row) for row in table.cells)
    return (
        f"\\begin{{tabular}}{{{alignment}}}\n"
        f"\\toprule\n{_row(table.headers)}\\midrule\n{rows}\\bottomrule\n"
        "\\end{tabular}\n"
    )


def _has_chance(table: Table) -> bool:
    """Return True if a table has cells marked :data:`.markdown.CHANCE`."""
    for row in table.cells:
        for cell in row:
            if markdown.CHANCE in cell:
                return True
    return False


def _with_conditions(tables: Iterable[Table]) -> list[Table]:
    """Return tables, each after that of the conditions in which its rows differ."""
    all_tables: list[Table] = []
    shown = ""
    for table in tables:
        if table.different is not None and tabular(table.different) != shown:
            all_tables.append(table.different)
            shown = tabular(table.different)
        all_tables.append(table)
    return all_tables


def document_part(tables: Iterable[Table], command: str = "report --latex") -> str:
    """Format tables as ``table`` environments with captions, to include in a document.

    Args:
        tables: the tables.
        command: command that makes them, which the file names.
    """
    parts = [HEADER.format(command=command)]
    for table in _with_conditions(tables):
        sentences = [f"{table.caption}."]
        sentences += [f"{text}." for text in (table.conditions, table.warning) if text]
        sentences += table.notes
        if _has_chance(table):
            sentences.append(markdown.CHANCE_NOTE)
        caption = literal(" ".join(sentences))
        parts.append(
            "\\begin{table}\n\\centering\n"
            f"\\caption{{{caption}}}\n{tabular(table)}"
            "\\end{table}\n"
        )
    return "\n".join(parts)
