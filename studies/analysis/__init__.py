"""What is computed from the results of a study, without Markdown or figures.

Read in this order:

1. ``evaluation_key.py``: the notation of evaluations, such as ``alibi-1@4/0.125``
2. ``study_results.py`` reads the finished models. A ``Measurement`` is the result of one of them in
   one evaluation.
3. ``losses.py`` joins the measurements of all seeds: ``DocumentLosses`` are those of one
   evaluation, and ``Losses`` those of all.
4. ``estimates.py``: the change between two evaluations, with its confidence interval
5. ``compared_models.py``: ``ComparedLosses`` finds losses and changes by the notation, with numbers
   in training lengths.
6. ``six_tests.py``: the tests E1 to E6. ``baseline.py`` has E6's extra rule.

Pages also show what these compute:

- ``cost_and_lead.py``: the two effects behind E6, in our models and the paper's
- ``by_length.py``: losses and changes of all methods by evaluation length
- ``validation_gaps.py``: how far methods are behind ALiBi during training
- ``published_gaps.py`` and ``paper_changes.py``: published numbers to compare with
"""
