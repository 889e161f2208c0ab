"""What is computed from the results of a study, without Markdown or figures."""
