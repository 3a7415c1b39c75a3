"""The answer of a chapter's page, as its reader gets it."""

import json
from functools import partial


def asking(page):
    """A function that asks the page, with inputs as keyword arguments, for an answer that went through JSON."""
    return partial(_ask, page)


def _ask(page, **given):
    return json.loads(json.dumps(page.ask({name: str(value) for name, value in given.items()}), allow_nan=False))
