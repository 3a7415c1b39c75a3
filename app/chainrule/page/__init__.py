"""The files of the explorer's page, for the server and for a file without a server.

assets.py             the paths of templates, static files and packaged third-party scripts
bundles.py            a script or a style sheet with all that it imports, as one file
modules.py            the import graph of the page's scripts; style_sheets.py of its style sheets
static_addresses.py   addresses of static files that a browser may keep
templating.py         the Jinja templates
data.py               the JSON in the page
"""
