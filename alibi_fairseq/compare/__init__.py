"""Comparisons of position methods on any text: configuration, runs, corpora, tables, and figures.

Read ``comparison_config.py`` first, then ``comparison_runs.py``, ``evaluations.py``, and
``experiment.py``.
"""
