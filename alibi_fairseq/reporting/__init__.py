"""Markdown tables and plots of results, shared by comparisons and the paper's report."""
