"""The page on STATUS_PORT: HTML, /status.json, /member.json, /healthz.
Shows what others know; decides nothing.
"""
