"""The one OpenAI client of the kit: used by self-test, canary, smoketest and gate.
Streams are parsed by usage counts, never by counting chunks.
"""
