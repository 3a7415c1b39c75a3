"""The server: what a request meets, in this order.

main.py      the app and the server that runs it

guard.py     who may talk to it, and the headers of every answer
pages.py     GET / and /docs, the pages a person looks at
api.py       /api/v1: dumps, profiles, values, and what can be asked for
live.py      /api/v1/live: the slider's WebSocket
model.py     /api/v1/model: the same routes for a user's own model
compute.py   the one place where torch runs, off the event loop
view.py      `chainrule.explore`: a server in the user's process
answers.py   JSON, entity tags and the one error shape
serve.py     the process: its socket, its start and its end
server.py    uvicorn's server; connections.py and slow_clients.py limit what clients may cost
"""
