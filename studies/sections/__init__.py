"""Sections of pages: tables, figures, and prose that pages of several studies share.

A module fills the slots of the templates whose names begin as its own does, such as
``title_claim.py`` those of ``title_claim.md`` and ``title_claim_summary.md``. What modules share:

- ``templates.py`` fills a template.
- ``wording.py`` and ``changes.py`` write names, numbers, and changes in perplexity.
- ``notation.md`` and ``cost_and_lead.md`` are without slots.
"""
