"""Record of results that others extend: tracks, their entries, the rules for these, and the page.

A record is a folder with a folder per track. A track is one comparison that anybody can join: a
text, a training budget, and evaluations. Each of its entries is a folder with the results of one
position method, which ``alibi-fairseq record add`` writes and nobody edits.
"""
