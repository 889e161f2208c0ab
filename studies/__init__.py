"""Studies that use the package; not installed with it.

``python -m studies`` trains the models of a YAML file and writes the page of their results.
``corpora/`` prepares the data, and ``experiment.py`` trains and evaluates. ``analysis/`` computes
what the pages show, and ``tables.py`` has the tables and figures of pages. ``small_models/``,
``gpu/``, and ``title/`` each have the YAML files and the page of a study.
"""
