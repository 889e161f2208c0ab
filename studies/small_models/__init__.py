"""What models of one million parameters show about length extrapolation.

``protocol.md`` fixes the tests; ``losses.py`` reads the results, ``estimates.py`` has the
statistics, ``primary_tests.py`` the six tests, and ``page.py`` writes
``results/small_models/README.md``.
"""
