"""The command line. `command_list` has the module of each command."""
