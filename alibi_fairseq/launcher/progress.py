"""How far a training is, read from what fairseq prints."""

from __future__ import annotations

import json

from tqdm import tqdm


class Progress:
    """A progress bar that reads the log lines of ``fairseq-train --log-format json``."""

    def __init__(self, title: str, updates: int):
        self.bar = tqdm(total=updates, desc=title, unit="update", dynamic_ncols=True)

    def see(self, line: str) -> None:
        """Move the bar when the line says how far the training is."""
        _, brace, rest = line.partition("| train_inner | {")
        if not brace:
            return
        seen = json.loads("{" + rest)
        self.bar.update(int(seen["num_updates"]) - self.bar.n)
        self.bar.set_postfix_str(f"loss {seen['loss']} bits")

    def close(self) -> None:
        """Leave the bar as it stands."""
        self.bar.close()
