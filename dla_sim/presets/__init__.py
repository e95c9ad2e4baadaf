"""Hardware presets as TOML files."""
