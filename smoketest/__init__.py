"""Eight questions with checkable answers, against a server or a router, from outside.
Uses client/; changes nothing on the server.
"""
