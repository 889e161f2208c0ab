"""The models of the study, which its pages and the figures of the documentation share."""

from __future__ import annotations

from pathlib import Path

from ..analysis.compared_models import ComparedModels
from ..analysis.study_results import StudyResults

#: Published results of the study.
RESULTS = Path(__file__).resolve().parents[2] / "results" / "small_models"

#: Text of the test documents, and of the models but those that are trained on books.
CORPUS = "wikipedia"
#: Models of the six tests.
MODELS = ComparedModels(CORPUS, train_length=128, baseline="share")

#: Models that read 24.0M tokens, and those that read 3.1M.
PRIMARY = "primary"
SECONDARY = "secondary"
#: Configurations of the study, and folders of their results. The last three only have trials.
CONFIGURATIONS = (PRIMARY, SECONDARY, "sinusoidal-3M", "sinusoidal-12M", "rates-12M")

#: Evaluation lengths of the tables and figures.
LENGTHS = (128, 256, 512, 1024, 2048)
#: Evaluation length of the figure of changes, as a multiple of the training length.
CHANGES_MULTIPLE = 16


def published_sets() -> list[tuple[StudyResults, ComparedModels]]:
    """Return the published models by text and number of tokens that they read, the fewest first."""
    secondary = StudyResults.load(RESULTS / SECONDARY)
    primary = StudyResults.load(RESULTS / PRIMARY)
    return [(secondary, ComparedModels("books", 128)), (secondary, MODELS), (primary, MODELS)]
