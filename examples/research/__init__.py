"""Research and approval: a long, realistic agent. README.md beside this file says how to run it."""
