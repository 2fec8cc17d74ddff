"""`python -m fusionstitch`."""

import sys

from fusionstitch.commands.cli import main

sys.exit(main())
