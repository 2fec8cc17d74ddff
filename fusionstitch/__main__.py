"""`python -m fusionstitch`."""

import sys

from fusionstitch.cli import main

sys.exit(main())
