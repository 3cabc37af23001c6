"""Run the command line with ``python -m tokenweir``."""

from tokenweir.cli import main

if __name__ == "__main__":
    main()
