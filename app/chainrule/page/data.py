"""The JSON in the explorer's page, with which it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from chainrule import __version__
from chainrule.diagnose.rules import LOCAL_RULES, RULES
from chainrule.page.glossary import glossary
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.spec.data import DATA_SETS
from chainrule.spec.keys import SPEC_KEYS
from chainrule.spec.presets import PRESETS
from chainrule.spec.programs import PROGRAMS
from chainrule.spec.values import Key
from chainrule.user_model.what_if import WhatIf

LIMITS = ("depth", "width", "batch", "flops", "memory_bytes")
"""The settings `max_…` that the page shows as limits of a spec."""


def page_data(
    spec: ModelSpec | WhatIf,
    *,
    settings: Settings,
    devices: Sequence[str],
    keys: Sequence[Key] = SPEC_KEYS,
    error: Mapping[str, Any] | None = None,
    dump: Mapping[str, Any] | None = None,
    dumps: Sequence[Mapping[str, Any]] = (),
    model: Mapping[str, Any] | None = None,
    lessons: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The data of a page that shows a spec first, or a what-if of the user's `model`, or a `dump`.

    `keys` are those of the query string. A `dump` has a `name`, and a `url` or `content`; `dumps` has all open ones,
    that one first. See `Model.page_data`.
    """
    return {
        "version": __version__,
        "spec": spec.as_dict(),
        "query": spec.query(keys) if isinstance(spec, WhatIf) else spec.query(),
        "keys": [
            {name: getattr(key, name) for name in ("name", "default", "kind", "choices", "minimum", "maximum", "doc")}
            for key in keys
        ],
        "programs": programs_list() if model is None else [],
        "presets": presets_list() if model is None else [],
        "data_sets": {name: size._asdict() for name, size in DATA_SETS.items()},
        "limits": {name: getattr(settings, f"max_{name}") for name in LIMITS},
        "devices": list(devices),
        "glossary": glossary(),
        "rules": asdict(RULES),
        "local_rules": asdict(LOCAL_RULES),
        "needs_token": settings.token is not None or bool(settings.tokens_file),
        "error": error,
        "dump": dump,
        "dumps": list(dumps),
        "model": model,
        "lessons": list(lessons),
    }


def programs_list() -> list[dict[str, Any]]:
    """The programs, ready for JSON; `defaults` is a program's whole default spec."""
    return [
        {
            "name": program.name,
            "doc": program.doc,
            "defaults": ModelSpec(program=program.name).as_dict(),
            "page": program.page,
        }
        for program in PROGRAMS.values()
    ]


def presets_list() -> list[dict[str, Any]]:
    """The presets, ready for JSON; `spec` holds the keys that differ from the default, `query` is canonical."""
    entries = []
    for preset in PRESETS:
        spec = ModelSpec.parse(preset.spec)
        values = spec.as_dict()
        entries.append(
            {
                "name": preset.name,
                "title": preset.title,
                "spec": {key.name: values[key.name] for key in SPEC_KEYS if key.name in preset.spec},
                "query": spec.query(),
                **{name: getattr(preset, name) for name in ("focus", "statistic", "theory", "printed")},
                "band": {statistic: list(band) for statistic, band in preset.band.items()},
                "note": preset.note,
            }
        )
    return entries
