"""Reports: the page, its tables and figures, and contradicting results files."""

import re
from pathlib import Path

import pytest
from figure_texts import figure_texts
from results_documents import (
    PROVENANCE,
    as_ours,
    cells_of,
    document,
    evaluation_record,
    figures_as_svg,
    probe_result,
    results_of,
)

from alibi_fairseq import cli
from alibi_fairseq.data.probes import DEPTHS
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.paper.collected_results import collect, describe_machine, device_name
from alibi_fairseq.paper.items import items
from alibi_fairseq.results.file import Results, save
from alibi_fairseq.results.provenance import Provenance, merge_provenance

TABLES = {f"table{number:02d}.md" for number in range(1, 16)}
FIGURES = {f"figure{number:02d}" for number in range(1, 12)} - {"figure03", "figure10"}


@pytest.fixture
def svg():
    with figures_as_svg():
        yield


def write_report(source: Path, out: Path, *options: str) -> Path:
    """Write the report of a results file or folder, and return the folder of the report."""
    assert cli.main(["report", str(source), "--out", str(out), *options]) == 0
    return out


def file_names(folder: Path) -> set[str]:
    """Return the names of the files of a folder."""
    return {path.name for path in folder.iterdir()}


def paper_results(shift: float = 0.1, **provenance) -> Results:
    """Return ALiBi's results of Table 5, each perplexity shifted by the same amount."""
    records = []
    for measurement in items()["table05"].measurements:
        if measurement.method.notation != "alibi":
            continue
        record = as_ours(
            measurement,
            perplexity=measurement.perplexity + shift,
            architecture="alibi_lm_wiki103",
            updates=286000,
        )
        records.append(record)
    return document(*records, corpus="wikitext-103", **provenance)


@pytest.mark.ci
@pytest.mark.usefixtures("svg")
def test_report_without_results_has_every_table_and_figure(tmp_path, capsys):
    assert cli.main(["report", "--out", str(tmp_path)]) == 0
    assert "0 measurements" in capsys.readouterr().out
    assert file_names(tmp_path / "tables") == TABLES
    expected = {f"{name}{suffix}" for name in FIGURES for suffix in (".png", ".svg", ".pdf")}
    assert file_names(tmp_path / "figures") == expected
    page = (tmp_path / "report.md").read_text()
    assert set(re.findall(r"\(figures/(\w+)\.png\)", page)) == FIGURES
    assert "18.40" in page
    assert "missing" in page


@pytest.mark.ci
@pytest.mark.usefixtures("svg")
def test_report_compares_only_paper_corpora(tmp_path, capsys):
    save(paper_results(), tmp_path / "in" / "paper.json")
    short = evaluation_record(12.34, train_length=512, length=512)
    long = evaluation_record(56.78, train_length=512, length=3072)
    save(document(short, long), tmp_path / "in" / "demo.json")
    out = write_report(tmp_path / "in", tmp_path / "out")
    assert "38 measurements, 36 comparable with the paper" in capsys.readouterr().out

    paper_table = (out / "tables" / "table05.md").read_text()
    assert paper_table.count("+0.10 =") == 36
    assert "12.34" not in paper_table
    demo_table = (out / "tables" / "demo-lengths.md").read_text()
    assert "12.34" in demo_table
    assert "56.78" in demo_table

    page = (out / "report.md").read_text()
    assert "demo is not a text of the paper" in page
    assert page.count("12.34") == 1

    assert (out / "figures" / "demo-lengths.png").is_file()
    paper_figure = figure_texts(out / "figures" / "figure04.svg")
    assert "ALiBi, L=512 (paper)" in paper_figure
    assert "ALiBi, L=512" in paper_figure


def test_collect_merges_files_and_rejects_contradictions(tmp_path):
    save(paper_results(shift=0.1), tmp_path / "a.json")
    save(paper_results(shift=0.1 + 1e-6), tmp_path / "b.json")
    results = collect([tmp_path])
    assert len(results.comparable("wikitext-103")) == 36
    save(paper_results(shift=0.5), tmp_path / "b.json")
    with pytest.raises(
        UserInputError, match=r"b\.json and .*a\.json contain different perplexities"
    ):
        collect([tmp_path])


def test_collect_compares_checkpoints_of_two_paths(tmp_path):
    perplexities = {"a": 10.0, "b": 10.0, "c": 11.0}
    for name, perplexity in perplexities.items():
        run = {"checkpoint": f"{name}/last.pt", "checkpoint_sha256": "d" * 64}
        save(document(evaluation_record(perplexity, **run)), tmp_path / f"{name}.json")
    results = collect([tmp_path / "a.json", tmp_path / "b.json"])
    assert [result.checkpoint for result in results.results] == ["a/last.pt"]
    with pytest.raises(UserInputError, match="contain different perplexities"):
        collect([tmp_path])


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_collect_keeps_losses_of_documents_whatever_the_order_of_files(tmp_path, names):
    run = {"checkpoint_sha256": "d" * 64, "checkpoint": "last.pt"}
    documents = {
        "documents": "empty-lines",
        "document_tokens": [400, 600],
        "document_bits": [1600.0, 2400.0],
    }
    save(document(evaluation_record(**run)), tmp_path / "a.json")
    save(document(evaluation_record(**run, **documents)), tmp_path / "b.json")
    (result,) = collect([tmp_path / f"{name}.json" for name in names]).results
    assert result.values.document_tokens == (400, 600)


def test_collect_rejects_other_json_files_of_a_folder(tmp_path):
    save(paper_results(), tmp_path / "results.json")
    (tmp_path / "settings.json").write_text('{"updates": 10}')
    with pytest.raises(
        UserInputError,
        match=r"settings\.json is not a results file of version 4\. Pass results files",
    ):
        collect([tmp_path])


@pytest.mark.ci
@pytest.mark.usefixtures("svg")
def test_report_of_other_corpus_omits_paper(tmp_path):
    results = tmp_path / "mine.json"
    save(document(evaluation_record(12.34)), results)
    out = write_report(results, tmp_path / "out")
    page = (out / "report.md").read_text()
    assert "12.34" in page
    assert "Table 5" not in page
    assert "paper, one V100" not in page
    assert file_names(out / "tables") == {"demo-lengths.md"}
    write_report(results, out, "--paper")
    assert file_names(out / "tables") >= TABLES


def test_report_has_accuracies_of_probes(tmp_path):
    trained = evaluation_record(seed=1)
    probe = [probe_result(0.75, 64, depth, trained) for depth in DEPTHS]
    path = tmp_path / "probe.json"
    save(Results(probe), path)
    out = write_report(path, tmp_path / "out")
    table = (out / "tables" / "copy-accuracy.md").read_text()
    assert ["ALiBi, L=64", "75%"] in cells_of(table)
    assert "75%" in (out / "report.md").read_text()
    out = write_report(path, tmp_path / "labeled", "--label", f"{path}=My model")
    table = (out / "tables" / "copy-accuracy.md").read_text()
    assert ["My model", "75%"] in cells_of(table)


def test_machine_is_the_device_of_all_records():
    gpu = {"cpu": "a processor", "cores": 2, "memory_gb": 1.0, "gpu": "a GPU"}
    on_cpu = evaluation_record(device="cpu")
    on_gpu = evaluation_record(length=256, device="cuda")
    provenance = Provenance(**PROVENANCE | {"hardware": gpu})
    machine = describe_machine(Results(results_of(on_cpu), provenance))
    assert machine == "a processor, 2 threads, fp32"
    assert describe_machine(Results(results_of(on_cpu, on_gpu), provenance)) == "a GPU, fp32"


@pytest.mark.parametrize(
    ("hardware", "machine", "device"),
    [
        ([{"gpu": "H200"}, {"gpu": "8 x H200"}], "several machines", "H200"),
        ([{"gpu": "H200"}, {"gpu": "A100"}], "several machines", "several machines"),
        (
            [{"cpu_family": "25", "cpu_model": "17"}, {"cpu_family": "26", "cpu_model": "2"}],
            "several machines",
            "several machines",
        ),
        ([{"memory_gb": 1.0}, {"memory_gb": 2.0}], "a CPU, 2 threads, fp32", "a CPU"),
    ],
)
def test_machines_of_a_merged_file(hardware, machine, device):
    unknown = {"cpu": "a CPU", "cores": 2, "memory_gb": None, "gpu": None}
    parts = [Provenance(**PROVENANCE | {"hardware": unknown | part}) for part in hardware]
    provenance = merge_provenance(parts)
    on = "cuda" if "gpu" in hardware[0] else "cpu"
    file = Results(results_of(evaluation_record(device=on)), provenance)
    assert describe_machine(file) == machine
    assert device_name(file) == device


def test_collect_follows_linked_folders(tmp_path):
    save(paper_results(), tmp_path / "elsewhere" / "results.json")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "cycle").symlink_to(folder)
    results = collect([folder])
    assert [path.name for path, _ in results.files] == ["results.json"]


@pytest.mark.parametrize("name", ["empty", "none.json"])
def test_report_requires_results(tmp_path, name):
    (tmp_path / "empty").mkdir()
    command = ["report", str(tmp_path / name), "--out", str(tmp_path / "out")]
    assert cli.main(command) == 2


@pytest.mark.usefixtures("svg")
def test_report_has_loss_by_position(tmp_path):
    record = evaluation_record(
        16.0,
        length=2,
        position_ends=[1, 2],
        position_tokens=[600, 400],
        position_bits=[2600.0, 1400.0],
    )
    results = tmp_path / "mine.json"
    save(document(record), results)
    out = write_report(results, tmp_path / "out", "--latex")
    assert "1 & 600 & 4.333" in (out / "tables" / "demo-loss-by-position.tex").read_text()
    table = (out / "tables" / "demo-loss-by-position.md").read_text()
    assert "4.333" in table
    assert "3.500" in table
    page = (out / "report.md").read_text()
    assert "4.333" in page
    assert "(figures/demo-loss-by-position.png)" in page
    assert "ALiBi" in figure_texts(out / "figures" / "demo-loss-by-position.svg")


@pytest.mark.ci
@pytest.mark.usefixtures("svg")
def test_report_titles_include_model_size(tmp_path):
    for name, layers in (("deep", 6), ("flat", 2)):
        model = {
            "architecture": "alibi_lm_tiny",
            "layers": layers,
            "width": 64,
            "checkpoint": "best.pt",
            "options": {"decoder_layers": str(layers)},
        }
        records = [evaluation_record(10.0 + layers, length=length, **model) for length in (64, 128)]
        save(document(*records), tmp_path / "in" / f"{name}.json")
    out = write_report(tmp_path / "in", tmp_path / "out")
    page = (out / "report.md").read_text()
    assert "ALiBi, L=64 (2 layers of width 64)" in page
    assert "(6 layers of width 64)" in page
    assert "## demo, alibi_lm_tiny\n" in page
    write_report(tmp_path / "in", out, "--title", "Deep or flat")
    page = (out / "report.md").read_text()
    assert page.startswith("# Deep or flat\n")
    assert page.count("Deep or flat") == 1
    assert "### Perplexity\n" in page
    (table,) = (out / "tables").glob("deep-or-flat*.md")
    assert table.read_text().startswith("# Deep or flat: perplexity\n")
    (figure,) = (out / "figures").glob("deep-or-flat*.svg")
    assert any(text.startswith("Deep or flat") for text in figure_texts(figure))


def write_report_of_two_texts(folder: Path, results: Results, other_results: Results) -> Path:
    """Write a report of results on two texts of one name, and return its folder."""
    save(results, folder / "in" / "one.json")
    save(other_results, folder / "in" / "two.json")
    return write_report(folder / "in", folder / "out")


@pytest.mark.parametrize(
    ("other_tokens", "other_data", "names"),
    [
        pytest.param(1000, "c" * 64, ("data aaaaaaaa", "data cccccccc"), id="other-data"),
        pytest.param(77, "a" * 64, ("1000 tokens", "77 tokens"), id="other-token-count"),
    ],
)
@pytest.mark.usefixtures("svg")
def test_report_separates_texts_of_one_name(tmp_path, other_tokens, other_data, names):
    results = document(evaluation_record(12.0, length=64), evaluation_record(12.0, length=128))
    other_results = document(
        evaluation_record(12.0, length=64, tokens=other_tokens),
        evaluation_record(12.0, length=128, tokens=other_tokens),
        data_sha256=other_data,
    )
    out = write_report_of_two_texts(tmp_path, results, other_results)
    (table,) = (out / "tables").glob("demo*lengths.md")
    text = table.read_text()
    assert "seeds" not in text
    assert text.count("| 12.00 |") == 2
    (figure,) = (out / "figures").glob("demo*.svg")
    panels = figure.read_text()
    for name in names:
        assert text.count(f"Perplexity on valid, non-overlapping, {name}:") == 1
        assert name[0].upper() + name[1:] in panels


@pytest.mark.ci
@pytest.mark.usefixtures("svg")
def test_paper_tables_separate_texts_of_one_name(tmp_path):
    results = paper_results()
    other_results = paper_results(data_sha256="c" * 64)
    out = write_report_of_two_texts(tmp_path, results, other_results)
    first_table, second_table = (out / "tables").glob("table05*.md")
    for table in (first_table, second_table):
        text = table.read_text()
        assert "2 seeds" not in text
        assert text.count("+0.10 =") == 36
    assert len(list((out / "figures").glob("figure04*.svg"))) == 2
    assert not list((out / "tables").glob("table08*.md"))  # of a text without results
