"""``python -m timerq`` is the command ``timerq``."""

from timerq.cli import main

if __name__ == "__main__":
    main()
