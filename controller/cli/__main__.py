"""`python -m controller.cli` is `topicwright`."""

import sys

from controller.cli.main import main

sys.exit(main())
