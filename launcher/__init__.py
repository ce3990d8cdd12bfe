"""`./glm53` on the host: refuse bad settings before Docker, then hand over to docker compose or to one verb.
Standard library only; a verb that needs packages asks launcher/environments.py for a private environment.
"""
