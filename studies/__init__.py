"""Studies that use the package; not installed with it."""
