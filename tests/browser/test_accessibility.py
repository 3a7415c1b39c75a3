"""axe-core finds nothing to complain of, on every page and view, in both colour schemes, wide and narrow."""

import pytest
from axe_playwright_python.sync_playwright import Axe

# Else it would fetch the style sheets again, from addresses of its own.
OPTIONS = {"resultTypes": ["violations"], "preload": False}

VIEWS = {
    "graph": "/",
    "inspector": "/#select=l2&tab=inspector",
    "heatmap": "/?preset=deep-kaiming#show=layers",
    "ridgeline": "/?preset=deep-exploding#show=layers&form=ridgeline",
    "steps": "/#show=steps&step=5",
    "ratio": "/#statistic=ratio&tab=profile",
    "compared": "/?scale=2#a=?&tab=inspector",
    "prediction": "/#predict=l2.std",
    "controls": "/?program=neuron#level=all&tab=controls",
    "foundations": "/foundations",
    **{
        page: f"/foundations/{page}"
        for page in "neuron arithmetic matmul broadcasting einsum initialization backward styles functions gradcheck "
        "extension".split()
    },
}


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
@pytest.mark.parametrize("size", [(1440, 900), (390, 844)], ids=["wide", "narrow"])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_no_violation(explorer, view, size, scheme):
    page = explorer.spend()
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(color_scheme=scheme)
    page.goto(explorer.url + VIEWS[view])
    page.wait_for_selector("run-status[data-seq], body[data-answers], .page-list", state="attached")
    if "/foundations" not in VIEWS[view]:
        explorer.idle()
    violations = Axe().run(page, options=OPTIONS).response["violations"]
    told = [(each["id"], node["html"][:120]) for each in violations for node in each["nodes"]]
    assert told == []
