"""Hook of MkDocs that gives the site the layout of the repository, and adds the reference.

Pages of ``docs/`` link to files outside of it, such as ``../README.md`` or a source file. MkDocs
only knows the files of one folder, so this hook adds the others. Then links work on the site as
they do in the repository.

A comment ``<!-- reference: MODULE -->`` in a page is invisible on GitHub. On the site, it becomes
the documentation of the module.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
START = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
LINK = re.compile(r"\]\(([^)\s#]+)")
#: Lines of badges, which load images from another host.
BADGES = re.compile(r"^\[!\[.*\]\(https://img\.shields\.io/.*\n", re.MULTILINE)

#: Style sheet that makes room for tables and commands, and keeps names in tables in one piece.
STYLE = "site.css"
RULES = """
.md-grid { max-width: 76rem; }
.md-typeset td code { word-break: normal; overflow-wrap: normal; }
"""

#: Comments that name a module to document.
REFERENCE = re.compile(r"^<!-- reference: (\S+) -->$", re.MULTILINE)


def linked_files(page: str) -> list[str]:
    """Return the files in the repository that a page links to, relative to the root."""
    text = (ROOT / page).read_text(encoding="utf-8")
    paths = []
    for target in LINK.findall(text):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        if "://" not in target and (ROOT / path).is_file():
            paths.append(path)
    return paths


def site_files() -> list[str]:
    """Return all pages, and the files that they link to, relative to the root."""
    waiting = [*START, *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
    paths: list[str] = []
    while waiting:
        path = waiting.pop(0)
        if path in paths:
            continue
        paths.append(path)
        if path.endswith(".md"):
            waiting += linked_files(path)
    return paths


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace the files of ``docs/`` by the files of the site, and keep the files of the theme."""
    kept = [file for file in files if file.src_dir != config.docs_dir]
    for path in site_files():
        kept.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    kept.append(File.generated(config, STYLE, content=RULES))
    return Files(kept)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Remove badges, so that pages load nothing from other hosts, and add the reference."""
    return REFERENCE.sub(r"::: \1", BADGES.sub("", markdown))
