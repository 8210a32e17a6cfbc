"""Self-attention attribution (Hao et al., AAAI 2021, arXiv 2004.11207): what the notebooks share.

Import the module you need: ``from helpers.attribution import attribute``.
"""

__version__ = "0.1.0"
