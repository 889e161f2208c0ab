"""Studies that use the package; not installed with it.

``python -m studies`` trains the models of a YAML file and writes the page of their results.
``corpora/`` prepares the data, and ``experiment.py`` trains and evaluates. ``study_results.py`` and
``losses.py`` read the results, ``estimates.py`` has the statistics, ``studied.py`` the changes
between evaluations, ``primary_tests.py`` the six tests, ``cost_and_lead.py`` the two effects behind
E6, and ``tables.py`` the tables and figures of pages. ``small_models/``, ``gpu/``, and ``title/``
each have the YAML files and the page of a study.
"""
