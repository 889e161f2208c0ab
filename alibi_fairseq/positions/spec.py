"""Position methods of a model with their options and attention windows: one value, three notations.

- ``rotary+none/p_rope=0.75``, in one word, for ``compare``: ``METHOD[+METHOD…][/OPTION=VALUE…]``.
  Plus signs separate the layers' methods, and the values of an option that is a list.
- ``--position-method rotary,none --p-rope 0.75``, for ``train``
- ``Rotary, p-RoPE 0.75 + No positions``, for tables and figures

Results record the value itself (:class:`..results.series.Series`). Reading them needs neither
PyTorch nor the plugins of their methods.
"""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from ..errors import UserInputError
from .display_names import METHOD_NAMES, OPTION_NAMES, SCORE_SCALING_NAMES, SLOPE_NAMES, method_name
from .model_patterns import expand_pattern
from .options import Value, flag, plain_type

Item = TypeVar("Item")


@dataclass(frozen=True)
class LayerMethod:
    """Position method of a layer.

    Attributes:
        name: registered name.
        options: values of the options that differ from their defaults.
        window: attention window in tokens; 0: unlimited.
        display_name: name that a plugin gives the method in tables; not part of the identity.
    """

    __pydantic_config__ = {"extra": "forbid"}  # results with unknown keys are rejected

    name: str
    options: Mapping[str, Value] = field(default_factory=dict, hash=False)
    window: int = 0
    display_name: str = field(default="", compare=False)

    @property
    def label(self) -> str:
        """Name in tables and figures, with the options that make it another method."""
        return self.label_with({})

    def label_with(self, defaults: Mapping[str, Value]) -> str:
        """Return the name in tables and figures, which states more options with their defaults."""
        shown = [self.display_name or method_name(self.name)]
        for option, value in {**defaults, **self.label_options}.items():
            if option == "alibi_slopes":
                shown.append(SLOPE_NAMES.get(str(value), SLOPE_NAMES["given"]))
            elif option == "alibi_distance":
                shown.append(f"{value} {OPTION_NAMES[option]}")  # log distance
            else:
                shown.append(f"{OPTION_NAMES.get(option, option.replace('_', ' '))} {short(value)}")
        return ", ".join(shown)

    @property
    def label_options(self) -> dict[str, Value]:
        """Options that are part of the name: with a plugin's method, all of them."""
        if self.name not in METHOD_NAMES:
            return dict(self.options)
        named = (*OPTION_NAMES, "alibi_slopes")
        return {option: self.options[option] for option in named if option in self.options}


class MethodNameKey(NamedTuple):
    """Label and registered names of a method, because plugins may give methods equal labels."""

    label: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class MethodSpec:
    """Position methods of the layers of a model.

    Attributes:
        layers: one method per layer, repeated over the layers of the model.
        score_scaling: scaling of the queries by the number of visible keys.
    """

    __pydantic_config__ = {"extra": "forbid"}  # results with unknown keys are rejected

    layers: tuple[LayerMethod, ...]
    score_scaling: str = "none"

    @classmethod
    def plain(cls, name: str) -> MethodSpec:
        """Return one method without options for all layers. The name need not be registered."""
        return cls((LayerMethod(name),))

    @classmethod
    def parse(cls, notation: str, **options: Value) -> MethodSpec:
        """Read the notation of ``compare``.

        Building the position method checks the values, which depend on the size of the model.

        Args:
            notation: the notation, or one that begins with a name of :data:`.MODEL_PATTERNS`.
            options: more options.

        Raises:
            UserInputError: there is no such method or option, or a value has the wrong type.
        """
        methods, *settings = expand_pattern(notation).split("/")
        texts = _split_settings(notation, settings)
        windows = texts.pop("attention_window", "0")
        scaling = texts.pop("score_scaling", "none")
        if scaling not in ("none", *SCORE_SCALING_NAMES):
            raise UserInputError(
                f"score_scaling of '{notation[:60]}' must be one of none, "
                f"{', '.join(SCORE_SCALING_NAMES)}."
            )
        names = methods.split("+")
        layers = math.lcm(len(names), windows.count(",") + 1)
        given: dict[str, Value] = {}
        for option, value in {**texts, **options}.items():
            given[option] = _typed_value(notation, option, value)
        return cls._of_layers(
            [names[layer % len(names)] for layer in range(layers)],
            layer_windows(windows, layers),
            given,
            scaling,
        )

    @classmethod
    def from_options(cls, options: Any) -> MethodSpec:
        """Read the options of a model of this package, or of fairseq's ``transformer_lm``.

        Args:
            options: options by name as attributes, with ``in``. A checkpoint may lack new ones.

        Raises:
            UserInputError: a list of layers is longer than the model, or has an invalid value.
        """
        if "position_method" not in options:
            return cls.plain(_stock_method(options))
        from .registry import all_options

        layers = options.decoder_layers
        names = cycle_over_layers("--position-method", options.position_method, layers)
        windows = layer_windows(_option(options, "attention_window", "0"), layers)
        given: dict[str, Any] = {}
        for option in all_options().values():
            given[option.name] = _option(options, option.name, option.default)
        scaling = _option(options, "score_scaling", "none")
        return cls._of_layers(names, windows, given, scaling)

    @classmethod
    def _of_layers(
        cls,
        names: Sequence[str],
        windows: Sequence[int],
        given: Mapping[str, Value],
        score_scaling: str,
    ) -> MethodSpec:
        """Return the value for one name and window per layer, and options of any of the methods.

        Raises:
            UserInputError: there is no such method, or an option applies to none of them.
        """
        # Methods import PyTorch, which a report of plain methods does not need.
        if not given and METHOD_NAMES.keys() >= set(names):
            plain = [LayerMethod(name, {}, window) for name, window in zip(names, windows)]
            return cls(_repeated_part(plain), score_scaling)
        from .registry import check_used, display_name, known_method, method_options

        changed = _changed(given)
        check_used(changed, [known_method(name) for name in names])
        layers = []
        for name, window in zip(names, windows, strict=True):
            known = method_options(name)
            own = {option: value for option, value in changed.items() if option in known}
            layers.append(LayerMethod(name, own, window, display_name(name) or ""))
        return cls(_repeated_part(layers), score_scaling)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of the method of each layer."""
        return tuple(layer.name for layer in self.layers)

    @property
    def windows(self) -> tuple[int, ...]:
        """Attention window of each layer in tokens; 0: unlimited."""
        return tuple(layer.window for layer in self.layers)

    @property
    def options(self) -> dict[str, Value]:
        """Options of all methods that differ from their defaults."""
        options: dict[str, Value] = {}
        for layer in self.layers:
            options |= layer.options
        return options

    def over(self, num_layers: int) -> list[LayerMethod]:
        """Return the method of each layer of a model."""
        return [self.layers[layer % len(self.layers)] for layer in range(num_layers)]

    @property
    def notation(self) -> str:
        """The notation of ``compare``, which :meth:`parse` reads."""
        words = ["+".join(_repeated_part(self.names))]
        for option, value in self.option_texts.items():
            words.append(f"{option}={value.replace(',', '+')}")
        return "/".join(words)

    @property
    def flags(self) -> list[str]:
        """Options of ``train``."""
        flags = ["--position-method", ",".join(_repeated_part(self.names))]
        for option, value in self.option_texts.items():
            name = option.replace("_", "-")
            if isinstance(self.options.get(option), bool):
                flags.append(f"--{name}" if self.options[option] else f"--no-{name}")
            else:
                flags += [f"--{name}", value]
        return flags

    @property
    def option_texts(self) -> dict[str, str]:
        """Options of the model that differ from their defaults, as ``train`` reads them.

        Commas separate the layers' values.
        """
        texts = {}
        for option, value in self.options.items():
            if isinstance(value, bool):
                texts[option] = str(value).lower()
            elif isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
                texts[option] = str(int(value))
            else:
                texts[option] = str(value)
        if any(self.windows):
            texts["attention_window"] = ",".join(map(str, _repeated_part(self.windows)))
        if self.score_scaling != "none":
            texts["score_scaling"] = self.score_scaling
        return texts

    @property
    def label(self) -> str:
        """Name in tables and figures, such as ``3 × Rotary (window 512) + No positions``.

        It names a window only where windows differ between layers.
        """
        return self.label_with({})

    def label_with(self, defaults: Mapping[str, Mapping[str, Value]]) -> str:
        """Return the label, which states more options with their defaults.

        Args:
            defaults: values of options by method.
        """
        names = []
        for layer in self.layers:
            name = layer.label_with(defaults.get(layer.name, {}))
            if layer.window and self._has_several_windows:
                name += f" (window {layer.window})"
            names.append(name)
        parts = []
        for name, equal_layers in groupby(_repeated_part(names)):
            count = len(list(equal_layers))
            parts.append(name if count == 1 else f"{count} × {name}")
        label = " + ".join(parts)
        if self.score_scaling != "none":
            label += f", {SCORE_SCALING_NAMES[self.score_scaling]}"
        return label

    @property
    def name_key(self) -> MethodNameKey:
        """Key of models with the same method in tables."""
        return MethodNameKey(self.label, _repeated_part(self.names))

    @property
    def labeled_options(self) -> set[str]:
        """Names of the options in :attr:`option_texts` that :attr:`label` states."""
        named = {"score_scaling"}
        if self._has_several_windows:
            named.add("attention_window")
        for layer in self.layers:
            named.update(layer.label_options)
        return named

    @property
    def _has_several_windows(self) -> bool:
        return len(set(self.windows)) > 1


def distinct_labels(methods: Iterable[MethodSpec]) -> dict[MethodSpec, str]:
    """Return the label of each method in one table.

    If two rows differ in an option of a plugin's method, all of them state its value. A default is
    only known if the plugin is imported.
    """
    methods = list(methods)
    defaults: dict[str, dict[str, Value]] = defaultdict(dict)
    for layer in (layer for method in methods for layer in method.layers):
        if layer.name not in METHOD_NAMES:
            for option in layer.options:
                defaults[layer.name].setdefault(option, _default(layer.name, option))
    return {method: method.label_with(defaults) for method in methods}


def unique_labels(methods: Sequence[MethodSpec]) -> dict[MethodSpec, str]:
    """Return a different label for each method: with its notation, if others have the same label.

    Args:
        methods: the methods, each once.
    """
    labels = distinct_labels(methods)
    counts = Counter(labels.values())
    unique = {}
    for method, label in labels.items():
        unique[method] = label if counts[label] == 1 else f"{label} ({method.notation})"
    return unique


def _default(method: str, option: str) -> Value:
    """Return the default of an option of a plugin's method; ``default`` if it is unknown."""
    # A plugin that is imported has imported the registry.
    registry = sys.modules.get(f"{__package__}.registry")
    if registry is None or method not in registry.METHODS:
        return "default"
    options = registry.method_options(method)
    return options[option].default if option in options else "default"


def split_at_commas(given: str) -> list[str]:
    """Return the values of an option of layers: one, or several separated by commas."""
    return [value.strip() for value in given.split(",")]


def cycle_over_layers(flag: str, given: str, num_layers: int) -> list[str]:
    """Return one value per layer from values separated by commas.

    Raises:
        UserInputError: if there are more values than layers.
    """
    values = split_at_commas(given)
    if len(values) > num_layers:
        raise UserInputError(
            f"{flag} {given} lists {len(values)} layers, but the model has {num_layers}. "
            "Remove some values."
        )
    return [values[layer % len(values)] for layer in range(num_layers)]


def layer_windows(given: str | int, num_layers: int) -> list[int]:
    """Return the attention window of each layer in tokens, 0 where there is no limit.

    Args:
        given: one window, or several separated by commas, which are repeated over the layers.

    Raises:
        UserInputError: if one is not an integer of at least 0, or there are more than layers.
    """
    windows = cycle_over_layers("--attention-window", str(given), num_layers)
    if not all(window.isdecimal() for window in windows):
        raise UserInputError(
            f"--attention-window must be a number of tokens of at least 0, or several separated by "
            f"commas, not {given}."
        )
    return [int(window) for window in windows]


def short(value: Value) -> str:
    """Return a value as text, a float in at most six digits."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _repeated_part(values: Sequence[Item]) -> tuple[Item, ...]:
    """Return the shortest list that gives the values when it is repeated."""
    for period in range(1, len(values) + 1):
        if all(value == values[index % period] for index, value in enumerate(values)):
            break
    return tuple(values[:period])


def _split_settings(notation: str, settings: Sequence[str]) -> dict[str, str]:
    """Return the values of ``OPTION=VALUE`` by option, with commas between the layers' values."""
    if not settings:
        return {}  # without importing the methods, which import PyTorch
    from .registry import all_options

    known = [*all_options(), "attention_window", "score_scaling"]
    options = {}
    for setting in settings:
        option, _, value = setting.partition("=")
        if option not in known or not value:
            raise UserInputError(
                f"Method '{notation[:60]}' has '{setting[:60]}', which is not OPTION=VALUE with "
                f"one of these options: {', '.join(known)}. Correct or remove it."
            )
        options[option] = value.replace("+", ",")
    return options


def _changed(given: Mapping[str, Value]) -> dict[str, Value]:
    """Return the options that differ from their defaults, with the types of the defaults."""
    from .registry import all_options

    changed = {}
    fields = all_options()
    for option, value in given.items():
        if value != fields[option].default:
            changed[option] = plain_type(fields[option])(value)
    return changed


def _typed_value(notation: str, option: str, value: Value) -> Value:
    """Return the value of an option in the type of its default.

    Raises:
        UserInputError: the value is not a number, or not true or false, but should be one.
    """
    from .registry import all_options

    kind = plain_type(all_options()[option])
    try:
        return flag(value) if kind is bool else kind(value)
    except ValueError as error:
        needed = "true or false" if kind is bool else "a number"
        raise UserInputError(
            f"{option} of '{notation[:60]}' must be {needed}, not '{str(value)[:60]}'."
        ) from error


def _option(options: Any, name: str, default: Any) -> Any:
    """Return an option, or its default if it is missing, for which OmegaConf 2.0 returns None."""
    return getattr(options, name) if name in options else default


def _stock_method(options: Any) -> str:
    """Return the position method of fairseq's ``transformer_lm``."""
    if options.no_token_positional_embeddings:
        return "none"
    return "learned" if options.decoder_learned_pos else "sinusoidal"
