"""The image: anchored patches, bases, FlashKDA, the Dockerfile and what verifies them.
Everything here can be checked without a GPU on an unpacked vLLM tree.
"""
