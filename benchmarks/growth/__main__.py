"""``python -m benchmarks.growth``: the same as ``python -m benchmarks growth``."""

import sys

from benchmarks.growth.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
