"""A trace as JSON and back: `wire` writes and reads it, `checks` validates it, `opened` holds the dumps on show."""
