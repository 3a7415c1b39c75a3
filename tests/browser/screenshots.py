"""Pictures of the explorer, made from the real server in a real Chromium.

python tests/browser/screenshots.py            the documents' pictures, into docs/
python tests/browser/screenshots.py OUTDIR     every scene at every size in both colour schemes, to be looked at
"""

import sys
from pathlib import Path

from chromium import launch
from playwright.sync_api import Browser, sync_playwright
from serving import server

SCENES = {
    "default": "/",
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
    "program": "/?program=neuron#level=all",
    "foundations": "/foundations",
    **{
        f"foundations-{page}": f"/foundations/{page}"
        for page in "neuron arithmetic matmul broadcasting einsum initialization backward styles functions gradcheck "
        "extension".split()
    },
}
README = {"explorer": "inspector", "graph": "opened", "layers": "layers", "foundations": "foundations-matmul"}
OWN = Path(__file__).resolve().parents[1] / "shared" / "user_models" / "deep_mlp.py"
"""The model of `own`, a picture of `chainrule explore`."""

SIZES = {"1440x900": (1440, 900), "1024x768": (1024, 768), "390x844": (390, 844)}
SCHEMES = ("light", "dark")

# Long enough for Plotly to take over from the canvas.
AT_REST_MS = 2500


def shoot(browser: Browser, address: str, size: tuple[int, int], scheme: str, target: Path) -> None:
    """One picture of one address."""
    width, height = size
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=2 if width < 500 else 1
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("run-status[data-seq], body[data-answers], .page-list")
    page.wait_for_timeout(AT_REST_MS)
    page.screenshot(path=target)
    context.close()
    print(target)


def main() -> None:
    """Make the pictures named on the command line, or all."""
    explored = server("explore", f"{OWN}:make", "--no-browser")
    with server("serve") as (url, _), explored as (own, _), sync_playwright() as playwright:
        browser = launch(playwright)
        if len(sys.argv) < 2:
            folder = Path(__file__).resolve().parents[2] / "docs"
            folder.mkdir(exist_ok=True)
            for scheme in SCHEMES:
                for name, scene in README.items():
                    shoot(browser, url + SCENES[scene], (1440, 900), scheme, folder / f"{name}-{scheme}.png")
                shoot(browser, own, (1440, 900), scheme, folder / f"own-{scheme}.png")
            return
        folder = Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        scenes = {**{scene: url + address for scene, address in SCENES.items()}, "own": own}
        for scene, address in scenes.items():
            for name, size in SIZES.items():
                for scheme in SCHEMES:
                    shoot(browser, address, size, scheme, folder / f"{scene}-{name}-{scheme}.png")


if __name__ == "__main__":
    main()
