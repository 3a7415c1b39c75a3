"""Reads the part of YAML that `compose.yaml` keeps to, so that its tests need no library.

Mappings and lists of scalars by indentation, flow lists of strings, quoted strings, comments on lines of their own,
anchors of mappings, and `<<: *name`. Every scalar stays a string, and an empty value is None.
"""

import json
import re


def read_yaml(text):
    lines = [(len(line) - len(line.lstrip()), line.strip()) for line in text.splitlines()]
    lines = [(indent, line) for indent, line in lines if line and not line.startswith("#")]
    return _block(lines, {})


def _block(lines, anchors):
    indent = lines[0][0]
    items = []
    for depth, line in lines:
        assert depth >= indent, line
        if depth == indent:
            items.append((line, []))
        else:
            items[-1][1].append((depth, line))
    if items[0][0].startswith("- "):
        assert not any(rest for _, rest in items), "a list of scalars"
        return [_scalar(line.removeprefix("- ")) for line, _ in items]
    made = {}
    for line, rest in items:
        key, value = re.fullmatch(r"([^\s:]+):(?: (.*))?", line).groups()
        name = value.removeprefix("&") if value and value.startswith("&") else None
        if name or value is None:
            read = _block(rest, anchors) if rest else None
        else:
            assert not rest, line
            read = anchors[value.removeprefix("*")] if value.startswith("*") else _scalar(value)
        if name:
            anchors[name] = read
        if key == "<<":
            made = {**read, **made}
        else:
            made[key] = read
    return made


def _scalar(text):
    return json.loads(text) if text.startswith(("[", '"')) else text
