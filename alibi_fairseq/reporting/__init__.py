"""Results: one JSON schema, where each number comes from, tables and figures beside the paper's."""
