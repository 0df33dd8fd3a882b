"""The commands of `weavehold`, one module each; `ops.cli.commands` lists them."""
