"""What programs ask through /mcp: a table of tools, one answer's shape, the plain form and the SDK's.
Read-only; runs nothing a caller names.
"""
