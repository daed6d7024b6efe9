"""An experiment as a value, and as a TOML file: its layers, sweeps and differences."""
