"""The operator side: views of runs, decisions of people, explanations, the command line and the page."""
