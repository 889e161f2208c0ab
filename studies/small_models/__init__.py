"""Study of length extrapolation with models of one million parameters.

``protocol.md`` fixes the models and tests, and ``page.py`` writes
``results/small_models/README.md``.
"""
