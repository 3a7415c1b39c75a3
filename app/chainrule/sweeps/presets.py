"""Maps worth a look, with the addresses of their pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MapPreset:
    """A map: the spec's query, the axes x and y, the number of seeds, the measure, and a sentence about it."""

    name: str
    title: str
    text: str
    spec: str
    over: tuple[str, str]
    measure: str
    seeds: int = 1

    @property
    def query(self) -> str:
        """The query string of its page."""
        x, y = self.over
        return f"{self.spec}&x={x}&y={y}&seeds={self.seeds}&measure={self.measure}"


MAP_PRESETS: Sequence[MapPreset] = (
    MapPreset(
        "tanh_depth",
        "How far tanh carries a gradient",
        "Left of χ₁ = 1 gradients vanish with depth, right of it they explode.",
        "widths=100x31&activation=tanh&init=lecun_normal&bias_std=0.2236&batch=32",
        ("scale=0.5:2:41", "depth=2:40:20"),
        "gradient_ratio",
    ),
    MapPreset(
        "tanh_phases",
        "The phases of tanh",
        "Ordered on the left, chaotic on the right: the border χ₁ = 1 of Poole et al. (2016).",
        "widths=100x21&activation=tanh&init=lecun_normal&batch=32",
        ("scale=0.5:2.5:41", "bias_std=0:1:21"),
        "gradient_ratio",
    ),
    MapPreset(
        "relu_depth",
        "The border of relu",
        "relu has one good scale: σ_w² = 2, Kaiming's, at any depth.",
        "widths=100x31&batch=32",
        ("scale=0.5:2:41", "depth=2:40:20"),
        "activation_std",
    ),
    MapPreset(
        "digits_depth",
        "How deep a tanh net learns digits",
        "After 100 steps, accuracy fades at about 6 ξ_c (Schoenholz et al. 2017).",
        "widths=64,50x10,10&data=digits&loss=cross_entropy&activation=tanh&init=lecun_normal&bias_std=0.2236&batch=64"
        "&optimizer=momentum&lr=0.02&step=100",
        ("scale=0.5:2:16", "depth=2:41:14"),
        "accuracy",
    ),
    MapPreset(
        "digits_lr",
        "Learning rate and scale on digits",
        "A larger scale needs a smaller learning rate.",
        "widths=64,32,10&data=digits&loss=cross_entropy&batch=64&step=100",
        ("scale=log:0.1:10:24", "lr=log:0.001:10:24"),
        "accuracy",
    ),
    MapPreset(
        "fractal",
        "The fractal border of training",
        "Training succeeds or diverges; the border stays ragged at any zoom (Sohl-Dickstein 2024).",
        "widths=16,16,2&activation=tanh&init=lecun_normal&bias=false&batch=16&dtype=float64&step=500",
        ("scale=log:0.1:0.6:64", "lr=log:0.3:3:64"),
        "loss_ratio",
    ),
    MapPreset(
        "width_standard",
        "Width and learning rate",
        "After 10 steps of Adam a wider net has a larger output: the same learning rate is too much for it.",
        "widths=16,64,64,1&activation=tanh&init=lecun_normal&batch=32&optimizer=adam&step=10",
        ("width=log:16:512:11", "lr=log:0.0001:1:17"),
        "activation_size:output",
    ),
    MapPreset(
        "width_mup",
        "The same in µP",
        "The coordinate check of µP (Yang et al. 2022): the output does not depend on the width.",
        "widths=16,64,64,1&activation=tanh&init=lecun_normal&batch=32&optimizer=adam&parametrization=mup&step=10",
        ("width=log:16:512:11", "lr=log:0.0001:1:17"),
        "activation_size:output",
    ),
)
