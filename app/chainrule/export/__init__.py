"""A trace or a spec in the formats that other programs read; `formats.py` is the table of them."""
