"""The tables and figures of the paper, from text to report: plan, prepare, train, evaluate."""
