"""``python -m alibi_fairseq`` is the command ``alibi-fairseq``."""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
