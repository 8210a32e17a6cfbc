"""Self-attention attribution (Hao et al., AAAI 2021, arXiv 2004.11207): what the notebooks share.

Import the module you need: ``from helpers.attribution import attribute``.
"""

import sys

__version__ = "0.1.0"

if "IPython" in sys.modules:  # in a notebook: errors without our stack
    from IPython import get_ipython

    from helpers._errors import shorten

    if (shell := get_ipython()) is not None:
        shorten(shell)
