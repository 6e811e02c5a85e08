"""The command `vanilla-transformer`: one file per subcommand.

The docstring of a subcommand's file is its summary in the help. The file has EXAMPLES; `Options`, a
dataclass whose fields are the options, or a function `parse(words)` that returns them; and
`run(options)`, which does the work. At their top these files import only what is quick, so that the
help is. What a subcommand needs of the library is imported when it runs, after its options and
files are checked.
"""
