"""Results: series, readings, and cases, results files, and provenance.

Read ``series.py``, ``case.py``, and ``result.py`` first. The package imports no fairseq, and of
this project only lower layers: errors, files, and the names of position methods.
"""
