"""The `feedlab` command, also `python -m feedlab`. The commands themselves are in `feedlab.cli`, one module a theme."""

import sys


def main() -> None:
    """Run the command line and leave with its exit code: 0 well, 1 a check failed, 2 one sentence said, 130 Ctrl-C."""
    try:
        from .cli import run

        code = run()
    except KeyboardInterrupt:  # while modules were being imported
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
