"""What the command line can do, one file per command: a frozen dataclass of options and a function that obeys it."""
