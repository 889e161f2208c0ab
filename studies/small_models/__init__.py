"""Study of length extrapolation with models of one million parameters.

``protocol.md`` fixes the models and tests. ``page.py`` writes ``results/small_models/README.md``,
and the two pages that it links to with ``secondary_page.py`` and ``disclosure_page.py``.
"""
