"""The YAML configuration file: its model, its loading, and errors that name the path."""
