"""`python -m holdfast._ops.cli`: the command, where no script is installed."""

from holdfast._ops.cli.main import main

main(prog_name="holdfast")
