"""The chapter's experiments as specs, each with the figure to look at and its expected value.

The bands of means and stds are theory's (`chainrule.diagnose.profile.expectations`); a preset has bands only for what
theory does not know. `printed` is the chapter's figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Preset:
    """A named spec and the figure to look at.

    `spec` holds the keys that differ from the default spec. `focus` names a tensor, `statistic` the column of its
    statistics to read first. `theory` is mean-field theory's figure (Poole 2016, Schoenholz 2017), without the finite
    width. `band` has the range over seeds, both ends included, of figures that theory does not know, of `focus` (std
    where float32 ends, zero_fraction) or of the pass (first_inf_layer, first_nan_layer): at n = 100, batch 200,
    float32, at least 19 in 20 seeds are within.
    """

    name: str
    title: str
    spec: Mapping[str, str]
    focus: str
    statistic: str
    theory: str
    printed: str
    note: str
    band: Mapping[str, tuple[float, float]] = field(default_factory=dict)


# The chapter's loop: fifty times x @ w, w of (100, 100), no biases; relu, where there is one, follows every product.
_FIFTY_LINEAR = {"widths": "100x51", "activation": "linear", "bias": "false"}
_FIFTY_RELU = {"widths": "100x51", "last_activation": "true", "bias": "false"}

PRESETS: tuple[Preset, ...] = (
    Preset(
        name="randn",
        title="Standard normal weights",
        spec={"init": "standard_normal"},
        focus="l1",
        statistic="std",
        theory="std √100 = 10",
        printed="10.0544",
        note="A sum of 100 products of standard normals has variance 100: one layer makes all values ten times larger.",
    ),
    Preset(
        name="scaled",
        title="Weights divided by √100",
        # Without relu: what it takes is the next one's subject.
        spec={"init": "lecun_normal", "activation": "linear"},
        focus="l1",
        statistic="std",
        theory="std 1",
        printed="1.0231",
        note="Weights divided by √n_in keep the variance of a linear layer constant.",
    ),
    Preset(
        name="scaled-relu",
        title="Weights divided by √100, after relu",
        spec={"init": "lecun_normal"},
        focus="l2",
        statistic="std",
        theory="mean 0.3989, std 0.5838",
        printed="0.3758 / 0.6150",
        note="Relu halves the second moment: the scale for a linear layer is too small if a relu follows.",
    ),
    Preset(
        name="kaiming-relu",
        title="Kaiming weights, after relu",
        spec={},
        focus="l2",
        statistic="std",
        theory="mean 0.5642, std 0.8256",
        printed="0.5720 / 0.8259",
        note="√(2/n_in) compensates for the relu: the second moment of l2 is 1.",
    ),
    Preset(
        name="deep-exploding",
        title="50 layers of standard normal weights",
        spec={**_FIFTY_LINEAR, "init": "standard_normal"},
        focus="out",
        statistic="nan",
        theory="std 10^l in layer l, the largest float32 is 3.4e38",
        printed="nan",
        band={"first_inf_layer": (37, 39), "first_nan_layer": (38, 40)},
        note="The first Inf appears at layer 38, the first NaN (Inf − Inf) at 39; from layer 40 on all values are NaN.",
    ),
    Preset(
        name="deep-vanishing",
        title="50 layers of weights ×0.01",
        spec={**_FIFTY_LINEAR, "init": "standard_normal", "scale": "0.01"},
        focus="out",
        statistic="zero_fraction",
        theory="std 10^−l in layer l, the smallest float32 is 1.4e-45",
        printed="0",
        band={"zero_fraction": (1.0, 1.0), "std": (0.0, 0.0)},
        note="Every layer divides by ten: from about layer 46 on every value is exactly 0.",
    ),
    Preset(
        name="deep-linear",
        title="50 layers of weights ×0.1",
        spec={**_FIFTY_LINEAR, "init": "standard_normal", "scale": "0.1"},
        focus="out",
        statistic="std",
        theory="std 1",
        printed="1.0150",
        note="Only std 1/√100 is stable over 50 layers. At width 100 results vary: the median over seeds is 0.922.",
    ),
    Preset(
        name="deep-relu",
        title="50 layers of weights ×0.1 with relu",
        spec={**_FIFTY_RELU, "init": "standard_normal", "scale": "0.1"},
        focus="out",
        statistic="std",
        theory="std 2.46e-8",
        printed="entries of about 1e-8",
        note="Relu halves the second moment fifty times, which multiplies the std by 2^−25.",
    ),
    Preset(
        name="deep-kaiming",
        title="50 layers of Kaiming weights with relu",
        spec=_FIFTY_RELU,
        focus="out",
        statistic="std",
        theory="std 0.8256",
        printed="–",
        note="√(2/n_in) is stable over 50 layers with relu. At width 100 results vary widely: the median is 0.450.",
    ),
)
"""The chapter's nine experiments, in its order."""

PRESET_BY_NAME: Mapping[str, Preset] = {preset.name: preset for preset in PRESETS}
