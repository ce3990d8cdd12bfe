"""One module a family of routes: each has `routes(context)`, and is one line in entrypoint/status/app.py."""
