"""Studies that use the package; not installed with it.

``python -m studies`` trains the models of a YAML file and writes the page of their results.

To follow it in the code, read in this order:

1. ``README.md``, for what a study is, ``six_tests.yaml``, for what most of them test, and
   ``gpu/hour.yaml``, an example
2. ``__main__.py``: the command. ``config.py`` has the keys of the YAML file.
3. ``experiment.py``: training and evaluation, on the data that ``corpora/`` prepares.
   ``model_folder.py`` keeps the results, and ``planned_series.py`` says how a run will train.
4. ``analysis/``: what is computed from the results
5. ``page.py`` and its template ``page.md``: the page, made of ``sections/``

A study whose YAML files share a page has ``page.py`` in its own folder: ``small_models/`` and
``title/``. ``readme/`` writes the findings of all studies into the README of the repository.
"""
