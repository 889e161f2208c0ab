"""Templates of pages."""

from __future__ import annotations

import pytest

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.reporting.page import fill

PAGE = """\
# Title of {{name}}

The model {{name}} has
a loss of {{loss}}.{{#note}} {{note}}.{{/note}}{{^note}} No note.{{/note}}

{{table}}

{{#table}}
Shown with {{name}}.
{{/table}}

- an item of {{name}},
  in two lines
"""


def test_slots_are_filled_and_paragraphs_broken_again():
    slots = {"name": "A", "loss": "1.5", "note": "Good", "table": "| a |\n| - |\n| b |\n"}
    assert fill(PAGE, slots, width=30) == (
        "# Title of A\n\nThe model A has a loss of 1.5.\nGood.\n\n| a |\n| - |\n| b |\n\n"
        "Shown with A.\n\n- an item of A,\n  in two lines"
    )


def test_empty_slots_leave_their_parts_out():
    filled = fill(PAGE, {"name": "A", "loss": "1.5", "note": "", "table": ""})
    assert filled == (
        "# Title of A\n\nThe model A has a loss of 1.5. No note.\n\n- an item of A,\n  in two lines"
    )


@pytest.mark.parametrize("template", ["{{name}} {{other}}", "{{#other}}text{{/other}}"])
def test_unknown_slots_are_rejected(template):
    with pytest.raises(UserInputError, match="unknown slot 'other'. Choose from name"):
        fill(template, {"name": "A"})


def test_quotes_keep_their_lines():
    quote = "> The model {{name}}\n> is quoted."
    assert fill(quote, {"name": "A"}) == "> The model A\n> is quoted."
