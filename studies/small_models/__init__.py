"""What models of one million parameters show about length extrapolation.

``protocol.md`` fixes the models and tests, and ``page.py`` writes
``results/small_models/README.md``.
"""
