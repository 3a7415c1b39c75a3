"""A trace as JSON and back: `wire` writes and reads it, `checks` validates a dump, `opened` holds the dumps on show."""
