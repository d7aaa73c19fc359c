"""``python -m zerolayer``: the command line without the script on the path."""

from zerolayer.cli import main

if __name__ == "__main__":
    main()
