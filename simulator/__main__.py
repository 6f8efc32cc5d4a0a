"""`python -m simulator`, in a checkout."""

from paddock.cli import main
from simulator.commands import app

if __name__ == "__main__":
    main(app)
