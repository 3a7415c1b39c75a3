"""Pictures of the explorer, made from the real server in a real Chromium.

python tests/browser/screenshots.py            the documents' pictures, into docs/
python tests/browser/screenshots.py OUTDIR [SCENE …]     scenes at every size, light, dark and with forced colours
"""

import io
import sys
from contextlib import ExitStack
from pathlib import Path

from chromium import launch
from PIL import Image
from playwright.sync_api import Browser, sync_playwright
from serving import server

SCENES = {
    "landing": "/",
    "lesson-question": "/?widths=100x51&activation=linear&bias=false&init=standard_normal#show=layers&lesson=signal.2",
    "lesson-answer": "/?widths=100x51&activation=linear&bias=false&init=standard_normal"
    "#show=layers&lesson=signal.2&answer=2",
    "lesson-done": "/?widths=100x51&activation=linear&bias=false&init=standard_normal&scale=0.1"
    "#show=layers&lesson=signal.3",
    "chapter": "/#level=layer",
    "inspector": "/#select=l2",
    "opened": "/#toggled=layers.0/forward&select=n0",
    "all-open": "/?widths=20,9,1&style=module#level=all&colour=time&thickness=size",
    "folded": "/?preset=deep-kaiming#fold=on&colour=std",
    "steps": "/?style=module#show=steps&step=14&select=w1",
    "deep-kaiming": "/?preset=deep-kaiming",
    "non-finite": "/?preset=deep-exploding",
    "vanishing": "/?preset=deep-relu",
    "layers": "/?widths=100x51&activation=tanh&init=lecun_normal&scale=1.6667#show=layers&form=ridgeline",
    "heatmap": "/?preset=deep-kaiming#show=layers",
    "compared": "/?preset=deep-kaiming&scale=1.1#a=?widths=100x51%26last_activation=true%26bias=false",
    "prediction": "/#predict=l2.std",
    "training": "/?widths=2,20x2,2&loss=cross_entropy&data=spirals&optimizer=momentum&lr=0.3&step=80#show=training",
    "lesson-training": "/?widths=2,32x10,2&scale=0.5&loss=cross_entropy&data=spirals&optimizer=momentum&lr=0.02"
    "&step=200#show=training&lesson=training.1",
    "training-digits": "/?widths=64,50,10&loss=cross_entropy&data=digits&lr=0.1&step=80#show=training",
    "training-random": "/?step=100#show=training",
    "map": "/map?widths=64,50x10,10&data=digits&loss=cross_entropy&activation=tanh&init=lecun_normal&bias_std=0.2236"
    "&batch=64&optimizer=momentum&lr=0.02&step=100&x=scale=0.5:2:16&y=depth=2:41:14&measure=accuracy",
    "guide": "/guide",
    "program": "/?program=neuron#level=all",
    "foundations": "/foundations",
    **{
        f"foundations-{page}": f"/foundations/{page}"
        for page in "neuron arithmetic matmul broadcasting einsum initialization backward styles functions gradcheck "
        "extension".split()
    },
}
DOCUMENTS = {
    "explorer-light": "inspector",
    "graph-light": "opened",
    "layers-light": "layers",
    "foundations-light": "foundations-matmul",
    "training-light": "training",
    "map-light": "map",
    "lesson-light": "lesson-training",
}
"""The pictures in docs/, and their scenes."""

MODELS = Path(__file__).resolve().parents[1] / "shared" / "user_models"
OWN = {"own": "deep_mlp.py:make", "gpt2": "known.py:gpt2", "resnet18": "known.py:resnet18"}
"""Scenes of `chainrule explore`."""

SIZES = {"1440x900": (1440, 900), "1024x768": (1024, 768), "390x844": (390, 844), "720x450": (720, 450)}
SCHEMES = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "forced": {"color_scheme": "dark", "forced_colors": "active"},
}

# A map of many nets.
SLOWEST_MS = 120_000
# Long enough for Plotly to take over from the canvas.
AT_REST_MS = 2500
FRAMES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)


def shoot(browser: Browser, address: str, size: tuple[int, int], scheme: str, target: Path) -> None:
    """One picture of one address, as on a first visit."""
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height}, device_scale_factor=2 if width < 500 else 1, **SCHEMES[scheme]
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("body[data-idle], .page-list, article", state="attached", timeout=SLOWEST_MS)
    page.wait_for_timeout(AT_REST_MS)
    page.screenshot(path=target)
    context.close()
    print(target)


def shoot_drag(browser: Browser, url: str, target: Path) -> None:
    """A strip: the landing's heatmap while the slider's thumb is dragged to ×0.7."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{url}/?widths=100x51&activation=linear&bias=false&init=lecun_normal#show=layers")
    slider = page.get_by_role("slider", name="Init scale")
    box = slider.bounding_box()
    assert box is not None
    pictures = []
    page.wait_for_selector("body[data-idle]", state="attached")
    for frame, scale in enumerate(FRAMES):
        # From ×0.5 to ×2, with equal steps; the thumb is 16 px wide.
        x = box["x"] + 8 + (box["width"] - 16) * (scale - 0.5) / 1.5
        page.mouse.move(x, box["y"] + box["height"] / 2)
        if frame == 0:
            page.mouse.down()
        page.wait_for_selector("body[data-idle]", state="attached")
        pictures.append(Image.open(io.BytesIO(page.locator("layers-view .frame").screenshot())).convert("RGB"))
    page.mouse.up()
    width, height = pictures[0].size
    strip = Image.new("RGB", (width * len(pictures), height))
    for frame, picture in enumerate(pictures):
        strip.paste(picture, (width * frame, 0))
    strip.resize((strip.width // 3, strip.height // 3), Image.Resampling.LANCZOS).save(target, optimize=True)
    page.close()
    print(target)


def shoot_pair(browser: Browser, url: str, target: Path) -> None:
    """Two spirals, learned from Kaiming's weights, and beside it from weights that are half as large."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    pictures = []
    for scale in ("1", "0.5"):
        page.goto(url + SCENES["lesson-training"].replace("scale=0.5", f"scale={scale}").partition("&lesson")[0])
        page.wait_for_selector("body[data-idle]", state="attached")
        pictures.append(Image.open(io.BytesIO(page.locator("training-view").screenshot())).convert("RGB"))
    width, height = pictures[0].size
    pair = Image.new("RGB", (2 * width, height))
    for place, picture in enumerate(pictures):
        pair.paste(picture, (width * place, 0))
    pair.save(target, optimize=True)
    page.close()
    print(target)


def main() -> None:
    """Make the pictures named on the command line, or all."""
    with ExitStack() as servers, sync_playwright() as playwright:
        url, _ = servers.enter_context(server("serve"))
        browser = launch(playwright)
        if len(sys.argv) < 2:
            folder = Path(__file__).resolve().parents[2] / "docs"
            folder.mkdir(exist_ok=True)
            for name, scene in DOCUMENTS.items():
                shoot(browser, url + SCENES[scene], (1440, 900), "light", folder / f"{name}.png")
            own, _ = servers.enter_context(server("explore", f"{MODELS / OWN['own']}", "--no-browser"))
            shoot(browser, own, (1440, 900), "light", folder / "own-light.png")
            shoot_drag(browser, url, folder / "drag.png")
            shoot_pair(browser, url, folder / "training-pair.png")
            return
        folder = Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        scenes = {scene: url + address for scene, address in SCENES.items()}
        wanted = sys.argv[2:] or [*scenes, *OWN]
        for scene in wanted:
            if scene in OWN:
                scenes[scene], _ = servers.enter_context(server("explore", f"{MODELS / OWN[scene]}", "--no-browser"))
        for scene in wanted:
            address = scenes[scene]
            for name, size in SIZES.items():
                for scheme in SCHEMES:
                    shoot(browser, address, size, scheme, folder / f"{scene}-{name}-{scheme}.png")


if __name__ == "__main__":
    main()
