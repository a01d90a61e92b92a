"""Run the command line with `python -m holdfast._operator.cli`, without an installed script."""

from holdfast._operator.cli.main import main

main(prog_name="holdfast")
