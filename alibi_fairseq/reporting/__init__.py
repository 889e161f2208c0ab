"""Markdown and LaTeX tables, and figures, of measurements and probes.

Comparisons, evaluations, model cards, and the paper's report use them. Read ``row.py`` and
``rows.py`` first, then ``table.py`` and ``perplexity_by_length.py``, and for figures
``figures_by_length.py``, ``figure_panels.py``, and ``plots.py``. ``facts.py``,
``common_conditions.py``, ``differing_conditions.py``, and ``row_names.py`` have what captions and
names of rows say of the models; ``texts.py`` tells texts apart.
"""
