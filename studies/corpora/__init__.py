"""From the text of a corpus to the binary data that a study's models are trained and tested on.

``config.py`` has the keys of a corpus in a study's YAML file. ``preparation.py`` makes the data:

1. ``document_sampling.py`` draws documents of the text.
2. ``shared_vocabulary.py`` tokenizes all corpora of a study with one dictionary.
3. ``excerpt.py`` cuts the beginnings of the splits and of many test documents.
"""
