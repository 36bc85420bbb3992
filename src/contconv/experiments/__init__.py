"""One file per claim of the paper: `run(config) -> result`."""
