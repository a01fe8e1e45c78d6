"""``python -m fluss_lab.cli``: how servers are started, whatever is on the path."""

from fluss_lab.cli.commands import main

if __name__ == "__main__":
    main()
