"""The command `vanilla-transformer`: one file per subcommand."""
