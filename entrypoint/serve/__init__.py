"""From a plan to vLLM's argv and environment; pure builders, one per profile.
Nothing here starts a process.
"""
