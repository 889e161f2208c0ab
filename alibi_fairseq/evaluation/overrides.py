"""Options of a checkpoint's model that an evaluation replaces (``--model-overrides``)."""

from __future__ import annotations

from pathlib import Path

from fairseq.dataclass.utils import overwrite_args_by_name
from omegaconf import open_dict

from ..errors import UserInputError
from ..models.config import AlibiLanguageModelConfig
from ..plugin.option_validation import check_options, declared_types
from ..positions import all_options


def apply_overrides(state: dict, overrides: dict, path: Path) -> None:
    """Replace options in the configuration of a checkpoint, and validate the result.

    fairseq applies overrides before a checkpoint is validated, so their errors would be blamed on
    the checkpoint. It also ignores options that are newer than the checkpoint.

    A checkpoint with ``args`` has its configuration from them since it was loaded. fairseq would
    build the model from ``args`` again, without the overrides, so they are removed.

    Args:
        state: contents of the checkpoint, which are changed.
        overrides: values by name of the option.
        path: path of the checkpoint, for messages.

    Raises:
        UserInputError: an override is not a model option, or has an unsafe value.
    """
    cfg = state.get("cfg") or {}
    model = cfg.get("model") or {}
    ours: set[str] = set()
    if "position_method" in model:  # one of our models, whose checkpoint may lack newer options
        ours = {*AlibiLanguageModelConfig.__dataclass_fields__, *all_options()}
    values = _as_declared(overrides, str(model.get("_name")))
    for name, value in values.items():
        is_option = name in model or name in ours
        if not is_option or name in ("_name", "arch"):
            raise UserInputError(
                f"--model-overrides: the checkpoint's model has no option '{name}'. Correct the "
                "name, or remove the override."
            )
        with open_dict(cfg):
            model[name] = value
    overwrite_args_by_name(cfg, values)  # also options of these names in other groups
    state["args"] = None
    check_options(cfg, f"{path} with --model-overrides")


def _as_declared(overrides: dict, model: str) -> dict:
    """Return the overrides, with text for a number where the model's option is text.

    JSON and YAML have ``4`` as a number, but options that also take a word, such as
    ``alibi_scale``, are text.
    """
    types = declared_types(model)
    values = {}
    for name, value in overrides.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        values[name] = str(value) if is_number and types.get(name) is str else value
    return values
