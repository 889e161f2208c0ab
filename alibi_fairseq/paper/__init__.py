"""What the paper says and did: its runs (``configs/``), its tables and figures (``results/paper/``).

From the runs come the flags of ``alibi-fairseq launch`` for any number of GPUs, and what ``reproduce`` trains
for a table.
"""
