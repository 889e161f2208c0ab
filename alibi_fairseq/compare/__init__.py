"""A comparison of position methods: train each on each length and seed, evaluate, report.

A :class:`~.description.Comparison` says what to compare; it is made from the options of
``alibi-fairseq compare`` or from a YAML file. :func:`~.engine.run` trains and evaluates its cells,
resumably, and writes one table and one figure. The demonstration is one such description.
"""

from .description import Comparison, Corpus, load

__all__ = ["Comparison", "Corpus", "load"]
