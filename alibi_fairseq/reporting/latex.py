"""LaTeX tables with the rules of the package booktabs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .table import Table

HEADER = "% Written by `alibi-fairseq {command}`. Requires \\usepackage{{booktabs}}.\n"
#: Largest number of words of a label.
LABEL_WORDS = 8
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


def _cell(text: str) -> str:
    """Escape the text of a cell; a hyphen before a number is a minus sign."""
    return re.sub(r"(?<![\w}-])-(?=\d)", "$-$", literal(text))


def _row(cells: Iterable[str]) -> str:
    """Format a row of a ``tabular`` environment whose cells are LaTeX."""
    return " & ".join(cells) + " \\\\\n"


def tabular(table: Table) -> str:
    """Format a table as a ``tabular`` environment, without caption and notes.

    The best cells of a column are bold.
    """
    alignment = "l" * table.left + "r" * (len(table.headers) - table.left)
    cells = [[_cell(text) for text in row] for row in table.cells]
    for number, column in enumerate(table.columns):
        for best in table.best_rows(column):
            cells[best][number] = f"\\textbf{{{cells[best][number]}}}"
    rows = "".join(_row(row) for row in cells)
    return (
        f"\\begin{{tabular}}{{{alignment}}}\n"
        f"\\toprule\n{_row(map(literal, table.headers))}\\midrule\n{rows}\\bottomrule\n"
        "\\end{tabular}\n"
    )


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


def label(kind: str, text: str) -> str:
    """Return a label, such as ``tab:perplexity-on-test``, of the words of a text.

    Args:
        kind: ``tab`` or ``fig``.
        text: any text, of which the first words count.
    """
    words = re.findall(r"[a-z0-9]+", text.lower())[:LABEL_WORDS]
    return f"\\label{{{kind}:{'-'.join(words)}}}\n"


def _unique_label(text: str, used: set[str]) -> str:
    """Return the label of a table that no other table has, and note it as used."""
    unique = label("tab", text)
    number = 1
    while unique in used:
        number += 1
        unique = label("tab", f"{number} {text}")
    used.add(unique)
    return unique


def figure(file: str, caption: str) -> str:
    """Format a figure as a ``figure`` environment with its caption.

    Args:
        file: name of the PDF without suffix.
        caption: caption of one or more sentences.
    """
    return (
        "% Requires \\usepackage{graphicx}, and \\graphicspath{{FOLDER/}} for another folder.\n"
        "\\begin{figure}\n\\centering\n"
        f"\\includegraphics[width=\\linewidth]{{{file}.pdf}}\n"
        f"\\caption{{{literal(caption)}}}\n{label('fig', file)}"
        "\\end{figure}\n"
    )


def document_part(tables: Iterable[Table], command: str = "report --latex", name: str = "") -> str:
    """Format tables as ``table`` environments with captions, to include in a document.

    Args:
        tables: the tables.
        command: command that makes them, which the file names.
        name: first words of the labels, such as the corpus.
    """
    parts = [HEADER.format(command=command)]
    labels: set[str] = set()
    for table in _with_conditions(tables):
        sentences = [f"{table.caption}."]
        sentences += [f"{text}." for text in (table.conditions, table.warning) if text]
        sentences += table.notes
        caption = literal(" ".join(sentences))
        unique = _unique_label(f"{name} {table.caption}", labels)
        parts.append(
            "\\begin{table}\n\\centering\n"
            f"\\caption{{{caption}}}\n{unique}{tabular(table)}"
            "\\end{table}\n"
        )
    return "\n".join(parts)
