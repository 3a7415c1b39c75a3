"""The server: what a request meets, in this order.

guard.py     who may talk to it, and the headers of every answer
pages.py     GET / and /docs, the pages a person looks at
api.py       /api/v1: dumps, profiles, values, and what can be asked for
live.py      /api/v1/live: the slider's WebSocket
model.py     /api/v1/model: the same of one's own model, where the server was given one
compute.py   the one place where torch runs, off the event loop
answers.py   JSON, entity tags and the one error shape
"""
