"""`python -m holdfast._operator.cli`: the command, where no script is installed."""

from holdfast._operator.cli.main import main

main(prog_name="holdfast")
