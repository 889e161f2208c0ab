"""Markdown and LaTeX tables, and figures, of measurements and probes.

Comparisons, evaluations, model cards, and the paper's report use them.
"""
