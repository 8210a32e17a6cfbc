"""``python -m helpers``: see :mod:`helpers.cli`."""

import sys

from helpers.cli import main

sys.exit(main())
