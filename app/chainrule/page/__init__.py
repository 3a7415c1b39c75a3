"""The explorer as a document: what both the server and a file without a server are made of.

assets.py             where templates, static files and packaged third-party scripts lie
bundles.py            a script or a style sheet with all that it imports, as one file
modules.py            the import graph of the page's scripts; style_sheets.py of its style sheets
static_addresses.py   addresses of static files that a browser may keep
templating.py         the Jinja templates
data.py               what the page knows before it has asked for anything
"""
