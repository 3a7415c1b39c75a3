"""The server. A request meets `guard`, then `pages`, `api`, `live` or `model`, and torch runs in `compute`."""
