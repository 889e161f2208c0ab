"""Tables and figures of the paper from the text to the report: plan, prepare, train, evaluate."""
