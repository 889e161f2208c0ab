"""Results: schema, results files, measurements, provenance, and manifests.

The package imports neither fairseq nor another package of this project except ``errors.py`` and
``files.py``.
"""
