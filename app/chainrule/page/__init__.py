"""The files of the explorer's page, for the server and for a file without a server."""
