"""Write the tables of keys in the documentation: ``python scripts/key_tables.py``.

Keys of YAML files have their descriptions in the metadata of fields, and those of JSON files in the
docstring of their class.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # studies/ is not installed

from alibi_fairseq.experiment.schema import (  # noqa: E402
    EVALUATION,
    MODELS,
    OUTPUT,
    TRAINING,
    Corpus,
    Evaluation,
    ExperimentConfig,
    ModelGroup,
)
from alibi_fairseq.files import atomic_write  # noqa: E402
from alibi_fairseq.options import option_flag  # noqa: E402
from alibi_fairseq.reporting import markdown  # noqa: E402
from alibi_fairseq.results.case import Case  # noqa: E402
from alibi_fairseq.results.manifest import Counts, Manifest  # noqa: E402
from alibi_fairseq.results.provenance import Hardware, Provenance  # noqa: E402
from alibi_fairseq.results.result import Result  # noqa: E402
from alibi_fairseq.results.series import Facts, Reading, Series, Stage  # noqa: E402
from alibi_fairseq.results.values import (  # noqa: E402
    Cost,
    ProbeValues,
    TextSummary,
    TextValues,
)
from studies.config import StudyConfig  # noqa: E402
from studies.corpora.config import StudyCorpus  # noqa: E402

PAGES = (
    ROOT / "docs" / "comparison-keys.md",
    ROOT / "docs" / "results.md",
    ROOT / "studies" / "your-own.md",
)


class Table(NamedTuple):
    """Table of YAML keys.

    Attributes:
        kinds: classes whose fields are the keys.
        groups: headings of the fields in the table; None for all.
        base: class whose fields are left out.
    """

    kinds: tuple[type, ...]
    groups: Collection[str | None] | None = None
    base: type | None = None

    def fields(self) -> list[Field]:
        """Return the fields in the order of the table."""
        left_out = {field.name for field in fields(self.base)} if self.base else set()
        chosen = []
        for kind in self.kinds:
            for field in fields(kind):
                in_group = self.groups is None or field.metadata.get("group") in self.groups
                if in_group and field.name not in left_out:
                    chosen.append(field)
        return chosen


#: Tables of YAML keys, by the name of their marker on a page.
YAML_TABLES = {
    "model-keys": Table((ExperimentConfig, ModelGroup), (None, MODELS)),
    "training-keys": Table((ModelGroup,), (TRAINING,)),
    "evaluation-keys": Table((Evaluation, ModelGroup, ExperimentConfig), (EVALUATION, OUTPUT)),
    "corpus-keys": Table((Corpus,)),
    "study-keys": Table((StudyConfig,), base=ExperimentConfig),
    "study-corpus-keys": Table((StudyCorpus,), base=Corpus),
}
#: Classes whose fields are the keys of JSON objects, by the name of their marker on a page.
JSON_TABLES = {
    "result-keys": Result,
    "series-keys": Series,
    "stage-keys": Stage,
    "facts-keys": Facts,
    "reading-keys": Reading,
    "case-keys": Case,
    "text-keys": TextValues,
    "probe-keys": ProbeValues,
    "cost-keys": Cost,
    "summary-keys": TextSummary,
    "provenance-keys": Provenance,
    "hardware-keys": Hardware,
    "manifest-keys": Manifest,
    "split-keys": Counts,
}
#: An entry of a docstring: names of fields, and the first line of their description.
ENTRY = re.compile(r"    (\w+(?:, \w+)*): (.*)")


def default_text(field: Field) -> str:
    """Return the default of a key as YAML would give it."""
    if field.name in ("models", "evaluations"):
        return markdown.NOTHING  # without it, there is one
    if field.default is MISSING and field.default_factory is MISSING:
        return "required"
    value = () if field.default is MISSING else field.default
    if value in (None, (), ""):
        return markdown.NOTHING
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value)
    return str(value)


def option_text(field: Field) -> str:
    """Return the argument of ``compare`` that sets a key."""
    return option_flag(field) or field.metadata.get("set_by", markdown.NOTHING)


def yaml_table(table: Table) -> str:
    """Write keys of an experiment as a Markdown table."""
    rows = []
    for field in table.fields():
        description = field.metadata["help"].replace("`", "")
        rows.append([field.name, option_text(field), default_text(field), description])
    headers = ["key", "option", "default", "description"]
    if all(row[1] == markdown.NOTHING for row in rows):
        del headers[1]
        for row in rows:
            del row[1]
    return markdown.table(headers, rows, left=len(headers))


def json_table(kind: type) -> str:
    """Write the keys of a JSON object as a Markdown table."""
    schema = TypeAdapter(kind).json_schema()
    types = schema.get("properties", {})
    if "$ref" in schema:  # of a class that contains itself
        types = schema["$defs"][kind.__name__]["properties"]
    rows = []
    for names, description in attributes(kind).items():
        keys = names.split(", ")
        kinds = dict.fromkeys(json_type(types[key]) for key in keys)
        rows.append([names, ", ".join(kinds), description.replace("`", "")])
    return markdown.table(["key", "type", "description"], rows, left=3)


def attributes(kind: type) -> dict[str, str]:
    """Return the descriptions of fields in the docstring of their class, by their names."""
    _, _, section = inspect.getdoc(kind).partition("Attributes:\n")
    described: dict[str, str] = {}
    names = ""
    for line in section.splitlines():
        entry = ENTRY.fullmatch(line)
        if entry:
            names = entry[1]
            described[names] = entry[2]
        else:
            described[names] += f" {line.strip()}"
    for names, text in described.items():
        text = re.sub(r" \(:\w+:`[^`]*`\)", "", text)  # a link of the reference
        described[names] = text.rstrip(".").replace("None", "null").replace("True", "true")
    return described


def json_type(schema: Mapping[str, Any]) -> str:
    """Return the type of a JSON value that has a schema. Null is left out."""
    if "anyOf" in schema:
        kinds = [json_type(part) for part in schema["anyOf"] if part.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if schema.get("type") == "array":
        return f"list of {json_type(schema['items'])}s"
    return schema.get("type", "object")  # a reference, or of any type


def update(text: str) -> str:
    """Replace the tables between their markers in the text of a page."""
    tables = {name: yaml_table(table) for name, table in YAML_TABLES.items()}
    for name, kind in JSON_TABLES.items():
        tables[name] = json_table(kind)
    for name, table in tables.items():
        begin = f"<!-- {name}: begin, generated by scripts/key_tables.py -->"
        end = f"<!-- {name}: end -->"
        before, found, rest = text.partition(begin)
        if found:
            _, _, after = rest.partition(end)
            text = f"{before}{begin}\n{table}{end}{after}"
    return text


def main() -> int:
    """Write the pages."""
    for page in PAGES:
        text = update(page.read_text(encoding="utf-8"))
        with atomic_write(page) as stream:
            stream.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
