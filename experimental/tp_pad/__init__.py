"""Zero padding for TP=3 and 6: which tensors grow along which axis (rules), and the load hook that does it.
Exact: a zero head or column adds zero. `./glm53 pad` records the sizes in config.json.
"""
