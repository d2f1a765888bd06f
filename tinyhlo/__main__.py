"""`python -m tinyhlo` is the command `tinyhlo`."""

import sys

from tinyhlo.cli import main

sys.exit(main())
