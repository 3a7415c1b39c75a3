"""What the explorer knows before it has asked for anything: the JSON in the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from chainrule import __version__
from chainrule.diagnose.rules import LOCAL_RULES, RULES
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.spec.keys import SPEC_KEYS
from chainrule.spec.presets import PRESETS
from chainrule.spec.programs import PROGRAMS
from chainrule.spec.values import Key
from chainrule.user_model.what_if import WHAT_IF_KEYS, WhatIf


def page_data(
    spec: ModelSpec | WhatIf,
    *,
    settings: Settings,
    devices: Sequence[str],
    error: Mapping[str, Any] | None = None,
    dump: Mapping[str, Any] | None = None,
    dumps: Sequence[Mapping[str, Any]] = (),
    model: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The data of a page on one spec.

    Args:
        spec: what the page shows first.
        settings: what the server allows.
        devices: what a spec may name.
        error: what was wrong with the address, if that was.
        dump: the dump to show in place of the spec's: its `name`, and its `url` or its `content`.
        dumps: all that there are, that one the first, in order: of each its `name` and its `url`.
        model: the model of the user's own whose what-if `spec` is: its `name`, the `base` of its API, the `groups` of
            its parameters, the `seed` of its pass, its `version`, and the `error` of a newer one. Then there are
            neither programs nor presets.
    """
    return {
        "version": __version__,
        "spec": spec.as_dict(),
        "query": spec.query(),
        "keys": keys_list(SPEC_KEYS if model is None else WHAT_IF_KEYS),
        "programs": programs_list() if model is None else [],
        "presets": presets_list() if model is None else [],
        "limits": limits_dict(settings),
        "devices": list(devices),
        "rules": rules_dict(),
        "local_rules": asdict(LOCAL_RULES),
        "needs_token": settings.token is not None,
        "error": error,
        "dump": dump,
        "dumps": list(dumps),
        "model": model,
    }


def keys_list(keys: Sequence[Key] = SPEC_KEYS) -> list[dict[str, Any]]:
    """A table of keys, the spec's unless it is another, as JSON shows it."""
    return [
        {
            "name": key.name,
            "default": key.default,
            "kind": key.kind,
            "choices": list(key.choices),
            "minimum": key.minimum,
            "maximum": key.maximum,
            "doc": key.doc,
        }
        for key in keys
    ]


def programs_list() -> list[dict[str, Any]]:
    """The programs of a spec, as JSON shows them; `defaults` is the whole spec that a program has of itself."""
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
    """The presets, as JSON shows them; `spec` holds the keys that differ from the default, `query` is canonical."""
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
                "focus": preset.focus,
                "statistic": preset.statistic,
                "theory": preset.theory,
                "printed": preset.printed,
                "band": {statistic: list(band) for statistic, band in preset.band.items()},
                "note": preset.note,
            }
        )
    return entries


def rules_dict() -> dict[str, Any]:
    """The rules behind figures, bands and verdicts, as JSON shows them."""
    return asdict(RULES)


def limits_dict(settings: Settings) -> dict[str, int]:
    """The limits of a spec on this server, as JSON shows them."""
    return {
        "depth": settings.max_depth,
        "width": settings.max_width,
        "batch": settings.max_batch,
        "flops": settings.max_flops,
        "memory_bytes": settings.max_memory_bytes,
    }
