"""Table, figure and results document of a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from ..files import atomic_write
from ..reporting.own_results import Columns, draw_lengths, length_csv, length_table
from ..reporting.probes import accuracy_table, draw_heat_maps, probe_columns
from ..results.points import document_points
from ..results.provenance import collect_provenance
from ..results.schema import load_document, new_document, save_document
from .comparison import Comparison
from .run import Run, Sweep


def write_report(
    comparison: Comparison,
    runs: list[Run],
    folder: Path,
    command: list[str] | None = None,
    notes: Sequence[str] = (),
    columns: Columns | None = None,
) -> tuple[str, list[Path]]:
    """Write ``table.md``, and per corpus ``results.json``, ``.csv`` and a figure.

    With several corpora the names of the latter begin with that of the corpus. A probe has no
    ``.csv``; its accuracies also stand beside the perplexities of the other corpora.

    Args:
        command: to name in the results (default: this program's own).
        notes: sentences to stand below the tables.
        columns: of the tables of perplexity, beside those of probes.

    Returns:
        The tables in Markdown, and all files.
    """
    sections, files = [f"# {comparison.title}", trained(comparison)], [folder / "table.md"]
    several = len(comparison.corpora) > 1
    documents: dict[str, tuple[Path, dict]] = {}
    for corpus, evaluations in evaluations_of(runs).items():
        path = folder / (f"{corpus.replace(' ', '-')}-results.json" if several else "results.json")
        document = document_of(comparison, evaluations, command)
        if path.is_file() and (kept := load_document(path))["cells"] == document["cells"]:
            document = kept  # nothing was measured again
        save_document(document, path)
        documents[corpus] = path, document
    columns = dict(columns or {})
    for corpus, (_, document) in documents.items():
        if document["kind"] == "probe":
            columns |= probe_columns(corpus, document["cells"])
    for corpus, (path, document) in documents.items():
        name = path.name.replace("results.json", "figure")
        figures = [folder / f"{name}.{kind}" for kind in ("png", "svg", "pdf")]
        title = f"{comparison.title}: {corpus}" if several else comparison.title
        files += [*figures, path]
        sections += [f"## {corpus}"] if several else []
        if document["kind"] == "probe":
            sections.append(accuracy_table(document["cells"]).rstrip())
            draw_heat_maps(document["cells"], f"Accuracy of the probe: {corpus}", *figures)
            continue
        points = document_points(document)
        sections.append(length_table(points, columns).rstrip())
        draw_lengths(points, title, *figures)
        with atomic_write(path.with_suffix(".csv")) as file:
            file.write(length_csv(document))
        files.append(path.with_suffix(".csv"))
    text = "\n\n".join([*sections, *notes])
    with atomic_write(folder / "table.md") as file:
        file.write(text + "\n")
    return text, files


def trained(comparison: Comparison) -> str:
    """The training of each model in a sentence."""
    plural = "s" if len(comparison.seeds) > 1 else ""
    tokens = comparison.updates * comparison.tokens_per_update
    return (
        f"Each model ({comparison.arch}) was trained on {tokens:,} tokens: {comparison.updates:,} "
        f"updates of {comparison.tokens_per_update:,}; seed{plural} "
        f"{', '.join(map(str, comparison.seeds))}."
    )


def evaluations_of(runs: list[Run]) -> dict[str, list[tuple[Run, Sweep]]]:
    """The evaluations by what was trained on, and where it was another, tested on."""
    found: dict[str, list[tuple[Run, Sweep]]] = {}
    for run in runs:
        for each in run.evaluations:
            other = f" {each.name}" if each.data else ""
            found.setdefault(f"{run.name.partition('/')[0]}{other}", []).append((run, each))
    return found


def document_of(
    comparison: Comparison,
    evaluations: list[tuple[Run, Sweep]],
    command: list[str] | None,
) -> dict:
    """The results of evaluations on the same data as one document."""
    documents = [load_document(each.results) for _, each in evaluations]
    kind = documents[0]["kind"]
    run, first = evaluations[0]
    provenance = collect_provenance(
        seconds=math.fsum(document["provenance"]["seconds"] for document in documents),
        seed=comparison.seeds[0] if len(comparison.seeds) == 1 else None,
        data=first.data or run.data,
        subsets=["train"] if kind == "probe" else ["train", comparison.subset],
        command=command,
    )
    asked = []
    for (_, each), document in zip(evaluations, documents):
        variant = {"label": each.name} if each.name and not each.data else {}
        asked += [cell | variant for cell in document["cells"] if each.has(cell)]
    return new_document(kind, documents[0]["corpus"], provenance, asked)
